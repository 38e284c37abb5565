"""Who goes on when: strangers that keep asking go one after another, a few at a time, with a pause between.

However many they are and however much they send, the loop goes round, and whatever else it does gets its turn. In the
pause it has nothing to do, if there are only strangers: threads that work for others, such as a store's, then get the
interpreter, which a loop that is always busy takes from them after every call into the system.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 8
"""How many go on between two pauses. Each starts a request, or has a piece of what it sent parsed."""
PAUSE_SECONDS: Final = 0.001


class StrangerQueue:
    """A queue of connections; each is in it at most once."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = AT_ONCE
        """How many may go on before the next pause."""

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when its turn has come, and never at once."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self._schedule()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if self._left:
            loop.call_soon(self._take)
        else:
            self._left = AT_ONCE
            loop.call_later(PAUSE_SECONDS, self._take)

    def _take(self) -> None:
        waiting = self._waiting
        due = [waiting.popleft() for _ in range(min(self._left, len(waiting)))]
        self._left -= len(due)
        if waiting:
            self._schedule()
        for go_on in due:
            go_on()
