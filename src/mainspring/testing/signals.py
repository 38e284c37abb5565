"""How commands of the test kit end on SIGINT or SIGTERM, and what they started with them.

python signals.py PARENT COMMAND…      runs a command that is killed when the process PARENT ends
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG: Final = 1
_SHOW_CURSOR: Final = "\x1b[?25h"
_REMOVALS: Final = 20
_scratch: Final[set[tuple[int, Path]]] = set()
"""Directories, each with the process that removes it: a forked process has nothing to do with them."""


class StopSignal:
    """Remembers the first signal, for whoever looks between two pieces of work; ends the process at the second.

    Nothing is raised, because the running code might catch it. A context manager.
    """

    def __init__(self) -> None:
        self.by: signal.Signals | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def is_told(self) -> bool:
        return self.by is not None

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.by is not None:
            leave(number)
        self.by = signal.Signals(number)


def end_at_once(last_words: Callable[[], str]) -> None:
    """From now on a signal ends this process with one line. For processes whose children do not outlive them."""

    def hear(number: int, _: FrameType | None) -> None:
        _write(f"\nended by {signal.Signals(number).name}: {last_words()}\n")
        leave(number)

    for number in SIGNALS:
        signal.signal(number, hear)


def remove_when_ended(directory: Path) -> None:
    """A directory is removed if a signal ends this process. If it ends in any other way, it has to remove it itself."""
    _scratch.add((os.getpid(), directory))


def leave(number: int) -> None:
    """Without any cleaning up, as a signal would, except for directories."""
    for process, directory in _scratch:
        for _ in range(_REMOVALS if process == os.getpid() else 0):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():  # our children, who live a little longer, may have written into it
                break
    if sys.stderr.isatty():
        _write(_SHOW_CURSOR)  # a progress bar hides it
    os._exit(128 + number)


def _write(text: str) -> None:
    """Not through `sys.stderr`: somebody may be in the middle of writing to it."""
    with suppress(OSError):
        os.write(2, text.encode())


def die_with(parent: int) -> None:
    """Be killed when the process that started this one ends, however it ends. Linux only; does nothing elsewhere.

    More exactly, when the thread that started it ends.
    """
    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def mortal(command: Sequence[str]) -> list[str]:
    """A command that does the same, and is killed when this process ends."""
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
