"""Whether the machine lets a process run: one that does not get a processor for long loses its lease, like one that is
paused, and no promise is broken by that.

The kernel counts for every thread how long it was ready to run and had to wait for a processor. That is no doing of the
process, however long it keeps the processor busy itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

SAMPLE_US: Final = 500_000
SHARE: Final = 0.5
"""Of a sample: a process that waits longer is starved."""


class Starvation:
    """Looks at the main thread of one process after another."""

    def __init__(self, now_us: Callable[[], int], waited_us: Callable[[int], int | None] | None = None) -> None:
        self._now_us = now_us
        self._waited_us = waited_us or waited_for_processor_us
        self._pid = 0
        self._since = 0
        self._waited = 0

    def look(self, pid: int) -> tuple[int, int] | None:
        """From when to when the process was starved, if it was since the look before. To be asked often."""
        now, waited = self._now_us(), self._waited_us(pid)
        if waited is None or pid != self._pid:
            self._pid, self._since, self._waited = pid, now, waited or 0
            return None
        if now - self._since < SAMPLE_US:
            return None
        since, share = self._since, (waited - self._waited) / (now - self._since)
        self._since, self._waited = now, waited
        return (since, now) if share >= SHARE else None


def waited_for_processor_us(pid: int) -> int | None:
    """None where the operating system does not say, and for a process that is no more."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) // 1000
    except (OSError, IndexError, ValueError):
        return None
