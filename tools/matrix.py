"""Runs the quick tests with each Python that is supported and can be had here: 3.11, 3.12, 3.13 and 3.14.

An interpreter is looked for as `python3.X`, then among those of pyenv, then asked of uv, which downloads one if it may.
Each gets an environment of its own in .matrix, which is kept, with the locked dependencies. What follows `--` is for
pytest.

Exits with 0 when the tests passed with every interpreter, with 1 when they failed with one, and with 3 when one could
not be had and the others passed: then nothing is known about that one, and it is named.
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PLACE: Final = ROOT / ".matrix"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
QUICK: Final = "not slow and not server"
LOCKS: Final = ("runtime", "cart", "test")
EXIT_NOT_TRIED: Final = 3


class NotTried(Exception):
    """Why an interpreter cannot be had."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)} [all]")
    ours, pytest = _parted(arguments)
    chosen = parser.parse_args(ours)
    if unknown := set(chosen.versions) - set(VERSIONS):
        parser.error(f"Expected versions of {', '.join(VERSIONS)}, got {', '.join(sorted(unknown))}")
    try:
        results = {version: _tried(version, pytest) for version in chosen.versions or VERSIONS}
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print()
    for version, result in results.items():
        print(f"Python {version}: {result}")
    if any(result.startswith("FAILED") for result in results.values()):
        return 1
    return EXIT_NOT_TRIED if any(result.startswith("NOT TRIED") for result in results.values()) else 0


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return [*arguments], []
    at = [*arguments].index("--")
    return [*arguments[:at]], [*arguments[at + 1 :]]


def _tried(version: str, pytest: Sequence[str]) -> str:
    print(f"\nPython {version}", flush=True)
    try:
        python = _environment(version)
    except NotTried as error:
        print(f"NOT TRIED: {error}", file=sys.stderr, flush=True)
        return f"NOT TRIED: {error}"
    command = [python, "-m", "pytest", "-m", QUICK, "--numprocesses", "2", "--dist", "worksteal", *pytest]
    done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603 - our own
    return "passed" if done.returncode == 0 else f"FAILED: pytest ended with {done.returncode}"


def _environment(version: str) -> str:
    """The interpreter of an environment in which everything is installed."""
    place = PLACE / version
    python = place / "bin" / "python"
    if not _is(python, version):
        shutil.rmtree(place, ignore_errors=True)
        _run(_interpreter(version), "-m", "venv", str(place), otherwise=f"python{version} has no venv")
    locks = [f"--requirement={ROOT / 'requirements' / f'{lock}.txt'}" for lock in LOCKS]
    install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    otherwise = f"the dependencies cannot be installed for Python {version}"
    _run(*install, "--require-hashes", *locks, otherwise=otherwise)
    _run(*install, "--no-deps", "--editable", str(ROOT), "--editable", str(ROOT / "apps/cart"), otherwise=otherwise)
    return str(python)


def _interpreter(version: str) -> str:
    for candidate in _candidates(version):
        if _is(Path(candidate), version):
            return candidate
    uv = shutil.which("uv")
    if uv is None:
        raise NotTried(f"there is no python{version} here, none of pyenv's, and no uv to get one")
    _run(uv, "python", "install", version, otherwise=f"there is no python{version} here, and uv cannot get one")
    found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)  # noqa: S603
    if found.returncode:
        raise NotTried(f"uv has installed Python {version}, and does not find it")
    return found.stdout.strip()


def _candidates(version: str) -> Iterator[str]:
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for one in sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True):
        yield str(one)


def _is(python: Path, version: str) -> bool:
    """Whether it runs, and is what its name says: a name may stand for a version that is not installed."""
    if not python.exists():
        return False
    says = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", says], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() == version


def _run(*command: str, otherwise: str) -> None:
    try:
        subprocess.run(command, check=True)  # noqa: S603 - our own
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotTried(otherwise) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
