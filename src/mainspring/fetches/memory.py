"""The memory that answers of fetches take together: while they are read, recorded, and brought to their origins.

Every answer has a bound of its own, but there may be thousands at once, and JSON writes a byte in up to six. So there
is one number of bytes for all of them. An answer asks for as many as it may take before it is read, and waits if they
are not there: its connection is not read meanwhile. Who came first is served first, but no site takes more than it
leaves to others. Nobody waits who has some: so whoever has some goes on, and gives them back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Self

from mainspring.fetches.outcome import Outcome

READ_COPIES: Final = 3
"""Of an answer that is read and recorded: as it came, put together, and in its record."""
STORED_COPIES: Final = 4
"""Of one whose record is read and written: the record twice, and what it says."""
SENT_COPIES: Final = 2
"""Of a result that is sent: as JSON, and in the request."""
_MOST_ESCAPED: Final = 6
_ESCAPED: Final = bytes(range(32)) + b'"\\'


class AnswerMemory:
    def __init__(self, limit: int, *, answer_bytes: int) -> None:
        self._limit = limit
        self._little = limit // 64
        self.largest = (1 + SENT_COPIES * _MOST_ESCAPED) * answer_bytes
        """What an answer that is brought to its origin can take, before anybody knows how long it is."""
        self.taken = 0
        self.most = 0
        """That was ever taken."""
        self._by_site: Counter[str] = Counter()
        self._waiting: dict[Share, Callable[[], None]] = {}

    def share(self, site: str) -> Share:
        """Use as `with`: nothing yet, and nothing afterwards."""
        return Share(self, site)

    def change(self, share: Share, size: int) -> None:
        """Have a share take so many, now."""
        self.taken += size - share.size
        self.most = max(self.most, self.taken)
        self._by_site[share.site] += size - share.size
        if not self._by_site[share.site]:
            del self._by_site[share.site]
        share.size = size

    def ask(self, share: Share, granted: Callable[[], None]) -> bool:
        """Have a share take what it wants: at once, or as soon as it is there, and then it is told."""
        self._waiting[share] = granted
        self.serve(newcomer=share)
        return share not in self._waiting

    def withdraw(self, share: Share) -> None:
        self._waiting.pop(share, None)

    def serve(self, newcomer: Share | None = None) -> None:
        """In the order in which they came. One that waits for others of its site holds nobody up, and one that waits
        for much holds up nobody who wants little."""
        is_full = False
        for share in tuple(self._waiting):
            if share not in self._waiting:
                continue
            size = min(share.wanted, self._limit)
            free = self._limit - self.taken
            taken = self._by_site.get(share.site, 0)
            if (taken and taken + size > free - size) or (is_full and size > self._little):
                continue
            if size > free:
                is_full = True
                continue
            granted = self._waiting.pop(share)
            self.change(share, size)
            if share is not newcomer:
                granted()


class Share:
    """What one answer takes of it."""

    def __init__(self, memory: AnswerMemory, site: str) -> None:
        self._memory = memory
        self.site = site
        self.size = 0
        self.wanted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.give_back()

    def ask(self, answer_bytes: int, granted: Callable[[], None]) -> bool:
        """For an answer that is read. False: there is nothing now; `granted` is called when there is."""
        return self._ask(READ_COPIES * answer_bytes, granted)

    def try_to_take(self, size: int) -> bool:
        """Without waiting, and before nobody who waits."""
        if self._ask(size, lambda: None):
            return True
        self.give_back()
        return False

    async def take(self, size: int) -> None:
        """Wait for it."""
        there = asyncio.Event()
        if not self._ask(size, there.set):
            await there.wait()

    def _ask(self, size: int, granted: Callable[[], None]) -> bool:
        """Who has some gives them back first."""
        self.give_back()
        self.wanted = size
        return self._memory.ask(self, granted)

    def keep(self, size: int) -> None:
        """It is known now how much is needed. What nobody asked for, because it is little, is taken without waiting."""
        self._memory.change(self, size)
        self._memory.serve()

    def give_back(self) -> None:
        self._memory.withdraw(self)
        if self.size:
            self.keep(0)


def while_recorded(outcome: Outcome) -> int:
    """What the end of a fetch takes until it is in the store."""
    return 0 if outcome.response is None else READ_COPIES * len(outcome.response.body)


def while_offered(outcome: Outcome | None) -> int:
    """What it takes until its origin has it, and that is in the store."""
    if outcome is None or outcome.response is None:
        return 0
    body = outcome.response.body
    return len(body) + max(STORED_COPIES * len(body), SENT_COPIES * written_bytes(body))


def written_bytes(body: bytes) -> int:
    """How long a body may become in JSON."""
    return len(body) + (_MOST_ESCAPED - 1) * (len(body) - len(body.translate(None, _ESCAPED)))
