"""One server process on this machine: its files, its end, and the certainty that it ends with us.

A server runs in a session of its own, so an interrupt at the terminal reaches only the tests. A small guardian
holds the other end of a pipe: when the test run is gone, however it went, the guardian kills the server.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

START_TIMEOUT = 120
STOP_TIMEOUT = 15
_GUARDIAN = 'read -r _; kill -s KILL -- "-$1"; rm -rf "$2"'


class ServerFailed(Exception):
    """A server that did not start or died; the message has the end of its log."""


class Process:
    """A running server program. `directory` is removed by the guardian if the test run dies."""

    def __init__(self, command: Sequence[str], *, directory: Path, log: Path, user: str | None = None) -> None:
        self._log = log
        self._user = user
        with log.open("ab") as output:
            self._server = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self._guardian = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN, "guardian", str(self._server.pid), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._server.pid

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Return when the server answers; end it and raise if it does not."""
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"Expected a server that answers, got this log:\n{self._end_of_log()}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals) -> None:
        """End it in order; a server that does not comply is killed."""
        self.resume()
        self._server.send_signal(how)
        try:
            self._server.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._let_go()

    def kill(self) -> None:
        """kill -9, its children too. Returns when all of them are gone, and with them their ports."""
        pids = _tree(self._server.pid)
        self._signal_tree(signal.SIGKILL)
        self._server.wait(STOP_TIMEOUT)
        deadline = time.monotonic() + STOP_TIMEOUT
        while any(map(_is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._let_go()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers. Returns when every thread of it has stopped."""
        self._signal_tree(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT
        while not all(_is_stopped(pid) for pid in _tree(self._server.pid)):
            if time.monotonic() > deadline:
                raise ServerFailed(f"Expected the processes of {self.pid} to stop, got some that go on")
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal_tree(signal.SIGCONT)

    def limit_files(self, size: int | None) -> None:
        """Let it write no file beyond this size; None: any size, as at first."""
        for pid in _tree(self._server.pid):  # parents first, so that children who come meanwhile inherit it
            command = ["prlimit", f"--pid={pid}", f"--fsize={'unlimited' if size is None else size}:"]
            # As the server's own user: whoever is root in a container may lack the right to do this to others.
            done = subprocess.run(command, user=self._user, group=self._user, check=False, timeout=STOP_TIMEOUT)
            if done.returncode and _is_running(pid):
                raise ServerFailed(f"Expected a limit of {size} for the files of process {pid}, got {done.returncode}")

    def _let_go(self) -> None:
        # First the guardian, unheard: its pipe closing would make it kill a process id that is no longer ours.
        self._guardian.kill()
        self._guardian.communicate(timeout=STOP_TIMEOUT)

    def _signal_tree(self, what: signal.Signals) -> None:
        # Not the process group: PostgreSQL makes every child the leader of its own.
        for pid in _tree(self._server.pid):
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                continue

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process does anything. One that has ended does not, either."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "TtZX":
            return False
    return True


def _tree(root: int) -> list[int]:
    """`root` and all that descends from it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The second field is a name in brackets that may hold anything; the fourth is the parent.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _is_running(pid: int) -> bool:
    """Not a process that is gone, nor one that only waits for somebody to ask how it ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
