"""Where server programs come from: Debian packages, or archives that are unpacked once into the user's cache.

Nothing is ever put into the checkout. What is in the cache is complete: it was built beside and then renamed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INSTALL_TIMEOUT = 600
_POLICY = Path("/usr/sbin/policy-rc.d")


class Unobtainable(Exception):
    """A server that this machine does not have and could not get; the message ends with what would install it."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "mainspring"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache, which holds a version in its name; `build` fills it if it is not there."""
    directory = cache_directory() / name
    with _locked(name):
        if not directory.exists():
            building = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache_directory()))
            try:
                build(building)
                building.rename(directory)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return directory


def debian_packages(packages: Sequence[str], *, provides: str) -> None:
    """See to it that `provides`, a path or a program, is there; as root on Debian by installing `packages`."""
    if _is_there(provides):
        return
    install = f"apt-get install -y {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unobtainable(f"Expected {provides}, got none. Install it with: sudo {install}")
    with _locked("apt"), _services_stay_off():
        if _is_there(provides):
            return
        options = ["-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]
        run(["apt-get", *options, "update"])
        run(["apt-get", *options, "install", "-y", "--no-install-recommends", *packages])
    if not _is_there(provides):
        raise Unobtainable(f"Expected {provides} after {install}, got none")


def run(command: Sequence[str], *, cwd: Path | None = None) -> None:
    """Run an installer to its end; its output is in the error if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    line = " ".join(command)
    try:
        subprocess.run(
            command, cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT
        )
    except FileNotFoundError as error:
        raise Unobtainable(f"Expected the program {command[0]}, got none. It is needed for: {line}") from error
    except subprocess.TimeoutExpired as error:
        raise Unobtainable(f"Expected an end within {INSTALL_TIMEOUT} s, got none from: {line}") from error
    except subprocess.CalledProcessError as error:
        raise Unobtainable(
            f"Expected success, got exit status {error.returncode} from: {line}\n{error.stderr}"
        ) from error


def _is_there(provides: str) -> bool:
    return Path(provides).exists() if provides.startswith("/") else shutil.which(provides) is not None


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Test runs that start at once install one after the other."""
    with (cache_directory() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Debian starts what it installs unless this script says no; we want the programs only."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)
