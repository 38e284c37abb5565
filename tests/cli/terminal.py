"""A command as a person runs it: a process on a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.running_server import COMMAND, Running, clean_environment

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment_of(server: Running) -> dict[str, str]:
    return clean_environment() | {"MAINSPRING_URL": server.url, "MAINSPRING_TOKEN": server.token}


@dataclass
class Terminal:
    """What the process has written, and the process."""

    process: subprocess.Popen[bytes]
    pieces: list[bytes] = field(default_factory=list)

    @property
    def raw(self) -> str:
        return b"".join(self.pieces).decode().replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """Without colours."""
        return _COLOUR.sub("", self.raw)


@contextmanager
def terminal(
    server: Running, *arguments: str, columns: int = 80, variables: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Runs a command. Its output is complete once the process has ended and the block is left."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = environment_of(server) | {"TERM": "xterm-256color", "TZ": "Europe/Berlin"} | dict(variables or {})
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = Terminal(process)
        reader = threading.Thread(target=_read, args=(ours, shown.pieces))
        reader.start()
        try:
            yield shown
            process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
            reader.join(10)
            os.close(ours)


def on_terminal(
    server: Running, *arguments: str, columns: int = 80, variables: Mapping[str, str] | None = None
) -> Terminal:
    with terminal(server, *arguments, columns=columns, variables=variables) as shown:
        pass
    return shown


def interrupted_when(shown: Terminal, is_there: Callable[[str], bool]) -> None:
    """Presses Ctrl-C as soon as what is shown is as expected."""
    deadline = time.monotonic() + 30
    while not is_there(shown.text):
        assert time.monotonic() < deadline, shown.text
        assert shown.process.poll() is None, shown.text
        time.sleep(0.05)
    shown.process.send_signal(signal.SIGINT)


def _read(descriptor: int, pieces: list[bytes]) -> None:
    try:
        while piece := os.read(descriptor, 65_536):
            pieces.append(piece)
    except OSError:
        return  # the other end is closed
