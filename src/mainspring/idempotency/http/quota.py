"""How much of answers is kept at once. Beyond it, that a request was done is still recorded, but not what it answered.

Counted by this process since it started, and let go of as the answers expire.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

_PARTS: Final = 256
"""Into so many parts the time is divided for which answers are kept: what expires is counted by the part."""


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
        """Of a part when its last answer has expired."""
        over = self._monotonic() - self._ttl_seconds * (1 + 1 / _PARTS)
        while self._parts and self._parts[0][0] <= over:
            self._kept -= self._parts.popleft()[1]
