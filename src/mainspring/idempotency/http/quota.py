"""How many bytes of answers are kept at once. Beyond that, it is still recorded that a request was done, but not the
answer.

This process counts what it has kept since it started, less what has expired.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

_PARTS: Final = 256
"""The time for which answers are kept is divided into this many parts: what expires is counted part by part."""


class Quota:
    def __init__(
        self, limit_bytes: int, *, ttl_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit_bytes
        self._ttl_seconds = ttl_seconds
        self._monotonic = monotonic
        self._kept = 0
        self._parts: deque[tuple[float, int]] = deque()
        """When each part begins, and what was kept in it."""

    @property
    def room(self) -> int:
        self._let_go()
        return max(0, self._limit - self._kept)

    def take(self, size: int) -> None:
        self._kept += size
        now = self._monotonic()
        if self._parts and now - self._parts[-1][0] < self._ttl_seconds / _PARTS:
            began, kept = self._parts.pop()
            self._parts.append((began, kept + size))
        else:
            self._parts.append((now, size))

    def _let_go(self) -> None:
        """Forget each part whose last answer has expired."""
        over = self._monotonic() - self._ttl_seconds * (1 + 1 / _PARTS)
        while self._parts and self._parts[0][0] <= over:
            self._kept -= self._parts.popleft()[1]
