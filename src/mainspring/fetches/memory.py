"""The memory that fetches take together: requests until they have left, answers while they are read, recorded, and
brought to their origins.

Each has a bound of its own, but there may be thousands at once, and JSON writes a byte in up to six. So there is one
number of bytes for all of them, a third of it for each of these three. A request for which there is no room waits in
the store. An answer asks for as many bytes as it may take before it is read, and waits if they are not there: its
connection is not read meanwhile. Who came first is served first, but no site takes more than it leaves to others.
Nobody waits who has some: so whoever has some goes on, and gives them back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, Self

from mainspring.delivery.answer import FRAMING_LIMIT, HEADER_LIMIT, LITTLE
from mainspring.fetches.messages import OutboundRequest
from mainspring.fetches.outcome import Outcome

READ_COPIES: Final = 3
"""Of an answer that is read and recorded: as it came, put together, and in its record."""
STORED_COPIES: Final = 4
"""Of one whose record is read and written: the record twice, and what it says."""
SENT_COPIES: Final = 2
"""Of a result that is sent: as JSON, and in the request."""
START_COPIES: Final = 6
"""Of a request whose call is begun: its record twice, what it says, where a character may be four bytes."""
HEADER_BYTES: Final = 200
"""What a header takes besides its name and value."""
MOST_HEADERS: Final = FRAMING_LIMIT + HEADER_LIMIT * HEADER_BYTES
_MOST_ESCAPED: Final = 6
_ESCAPED: Final = bytes(range(32)) + b'"\\'


class FetchMemory:
    def __init__(self, limit: int, *, answer_bytes: int) -> None:
        self._limit = limit
        self._little = limit // 64
        self.largest = (1 + SENT_COPIES * _MOST_ESCAPED) * answer_bytes + (1 + STORED_COPIES) * MOST_HEADERS
        """What an answer that is brought to its origin can take, before anybody knows how long it is."""
        self.taken = 0
        self.most = 0
        """That was ever taken."""
        self._by_site: Counter[str] = Counter()
        self._waiting: dict[Share, Callable[[], None]] = {}

    def share(self, site: str) -> Share:
        """Use as `with`: nothing yet, and nothing afterwards."""
        return Share(self, site)

    @property
    def free(self) -> int:
        return self._limit - self.taken

    def room(self, site: str, size: int) -> int:
        """For how many more of a size there is room now, for who does not wait. Larger ones go alone."""
        size = max(1, min(size, self._limit))
        free, taken = self.free, self._by_site.get(site, 0)
        if size > free:
            return 0
        return max(0 if taken else 1, (free - taken) // (2 * size))

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
            free = self.free
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

    def __init__(self, memory: FetchMemory, site: str) -> None:
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


class RequestMemory:
    """For requests: from when their records are read until they have left.

    How large one is that is about to be read nobody knows, so it counts as the largest. What has no room is tried again
    when somebody else has given back some: `freed` is told of the lanes that have asked in vain.
    """

    def __init__(self, limit: int, *, body_bytes: int, freed: Callable[[Iterable[str]], None]) -> None:
        self._memory = FetchMemory(limit, answer_bytes=body_bytes)
        self._largest = START_COPIES * body_bytes
        self._freed = freed
        self._held: defaultdict[str, list[Share]] = defaultdict(list)
        self._short: dict[str, None] = {}

    @property
    def taken(self) -> int:
        return self._memory.taken

    @property
    def most(self) -> int:
        return self._memory.most

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for some."""
        return bool(self._short)

    def room(self, lane: str, site: str) -> int:
        """For how many requests of a site there is room, of whatever size."""
        room = self._memory.room(site, self._largest)
        if room:
            self._short.pop(lane, None)
        else:
            self._short[lane] = None
        return room

    def hold(self, site: str, change: int) -> None:
        """Take room for one that is to be read (1), or give it back when that is over (-1)."""
        held = self._held[site]
        if change > 0:
            share = self._memory.share(site)
            share.keep(self._largest)
            held.append(share)
            return
        self._give_back(held.pop())
        if not held:
            del self._held[site]

    def has_room(self, site: str, size: int) -> bool:
        """For one of a size that is known."""
        if size <= LITTLE or self._memory.room(site, size):
            return True
        self._short[site] = None
        return False

    def keep(self, site: str, request: OutboundRequest) -> Callable[[], None]:
        """It is about to be sent; returns what is to be called when it has left."""
        share = self._memory.share(site)
        share.keep(size_of(request))
        return partial(self._give_back, share)

    def _give_back(self, share: Share) -> None:
        if share.size:
            share.give_back()
            if self._short:
                asyncio.get_running_loop().call_soon(self._tell)  # whoever gives back may be in the middle of something

    def _tell(self) -> None:
        """As many as there may be room for, who asked first at first: to ask all of them each time would take long."""
        told = list(islice(self._short, max(1, self._memory.free // self._largest)))
        for lane in told:
            del self._short[lane]
        if told:
            self._freed(told)


def size_of(request: OutboundRequest) -> int:
    """What the request of a call takes until it is sent."""
    texts = [text for text in (request.body, request.body_base64) if isinstance(text, str)]
    body = sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
    return body + headers_size(request.headers)


def headers_size(headers: dict[str, str]) -> int:
    return sum(HEADER_BYTES + len(name) + len(value) for name, value in headers.items())


def while_recorded(outcome: Outcome) -> int:
    """What the end of a fetch takes until it is in the store."""
    response = outcome.response
    return 0 if response is None else READ_COPIES * (len(response.body) + headers_size(response.headers))


def while_offered(outcome: Outcome | None) -> int:
    """What it takes until its origin has it, and that is in the store."""
    if outcome is None or outcome.response is None:
        return 0
    body, headers = outcome.response.body, headers_size(outcome.response.headers)
    read = len(body) + headers
    return read + max(STORED_COPIES * read, SENT_COPIES * (written_bytes(body) + headers))


def written_bytes(body: bytes) -> int:
    """How long a body may become in JSON."""
    return len(body) + (_MOST_ESCAPED - 1) * (len(body) - len(body.translate(None, _ESCAPED)))
