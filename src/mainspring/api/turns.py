"""Who goes on when: strangers that keep on asking go one after the other, a few in each turn of the loop.

However many they are and however much they send, the loop goes round, and whatever else it does gets its turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 8
"""Who goes on in one turn of the loop. Each starts a request, or has a piece of what it sent parsed."""


class Turns:
    """A queue of connections; each is in it at most once."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when its turn has come, and never at once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._take)
        self._waiting.append(go_on)

    def _take(self) -> None:
        waiting = self._waiting
        due = [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]
        if waiting:
            asyncio.get_running_loop().call_soon(self._take)
        for go_on in due:
            go_on()
