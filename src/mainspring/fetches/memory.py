"""The memory that fetches take together: requests until they have left, answers while they are read, recorded, and
brought to their origins.

Each has a bound of its own, but there may be thousands at once, and JSON writes a byte in up to six. So there is one
number of bytes for all of them, a third of it for each of these three. A request for which there is no room waits in
the store. An answer asks for as many bytes as it may take before it is read, and waits if they are not there: its
connection is not read meanwhile.

Part of each third is reserved for each tier of hosts, as slots are (`kernel.slots`): hosts that are dead or slow, new,
or only just known cannot take it from those that answer. Within a tier, first come is first served, but no site takes
more than it leaves to others. Those that want little may pass one that waits for much, but all that have passed may
hold only a small part of the memory together: so the rest comes free for the one that waits, however many little ones
arrive. Whoever holds memory never waits for more, so it goes on and gives it back. An answer that stalls while others
wait is asked to give it back: reading resumes when its turn comes again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Self

from mainspring.delivery.answer import LITTLE
from mainspring.delivery.call import IncomingAnswer
from mainspring.fetches.messages import OutboundRequest
from mainspring.fetches.outcome import Outcome, Response
from mainspring.kernel.shares import Tier

READ_COPIES: Final = 3
"""Copies of an answer that is read and recorded: as it came, put together, and in its record."""
STORED_COPIES: Final = 4
"""Copies of one whose record is read and written: the record twice, and what it says."""
SENT_COPIES: Final = 2
"""Copies of a result that is sent: as JSON, and in the request."""
START_COPIES: Final = 3
"""Copies of a request whose call is begun: its record twice, and what it says."""
REQUEST_SIZES: Final = (0, *(4**power for power in range(7, 14)))
"""A request counts as one of these until its record is read. The first is for small ones."""
STALL_SECONDS: Final = 2.0
"""An answer of which less than a little has arrived in this time has stalled."""
_KEPT: Final = (3, 3, 3, 1)
"""Sixteenths of the memory for each tier: by default, enough for the largest answer that is read."""
HEADER_BYTES: Final = 200
"""What a header takes in addition to its name and value."""
_MOST_ESCAPED: Final = 6
_ESCAPED: Final = bytes(range(32)) + b'"\\'


class FetchMemory:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._little = limit // 64
        self._for_passing = limit // 8
        """What those may have together who have passed others."""
        self.kept = tuple(limit * part // 16 for part in _KEPT)
        """Reserved for each tier, whatever the others take."""
        self.most = 0
        """That was ever taken."""
        self._by_tier = [0] * len(Tier)
        self._by_site: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        """The part of it that those have who have passed others."""
        self._waiting: dict[Share, Callable[[], None]] = {}
        self._read: dict[Share, int] = {}
        """Answers that have room, and how much of each had arrived at the last look."""
        self._look: asyncio.TimerHandle | None = None

    def share(self, site: str, tier: Callable[[], Tier]) -> Share:
        """Use as `with`: it holds nothing at first, and nothing afterwards. `tier` says what is known of the host."""
        return Share(self, site, tier)

    @property
    def taken(self) -> int:
        return sum(self._by_tier)

    def free(self, tier: Tier) -> int:
        """What this tier may take of it."""
        unused = (max(0, kept - taken) for kept, taken in zip(self.kept, self._by_tier, strict=True))
        own = max(0, self.kept[tier] - self._by_tier[tier])
        return self._limit - self.taken - sum(unused) + own

    def room(self, site: str, size: int, tier: Tier) -> int:
        """How many more of a size there is room for now, without waiting. Larger ones go alone."""
        size = self._bounded(size, tier)
        free, taken = self.free(tier), self._by_site.get(site, 0)
        if size > free:
            return 0
        return max(0 if taken else 1, (free - taken) // (2 * size))

    def change(self, share: Share, size: int) -> None:
        """Have a share take this many, now."""
        self._by_tier[share.tier] += size - share.size
        self.most = max(self.most, self.taken)
        for by_site in (self._by_site, self._passed) if share.has_passed else (self._by_site,):
            by_site[share.site] += size - share.size
            if not by_site[share.site]:
                del by_site[share.site]
        share.size = size

    def ask(self, share: Share, granted: Callable[[], None]) -> bool:
        """Have a share take what it wants: at once, or as soon as it is there, in which case it is told."""
        self._waiting[share] = granted
        self.serve(newcomer=share)
        return share not in self._waiting

    def withdraw(self, share: Share) -> None:
        """It no longer waits, and no answer that holds it is being read."""
        self._waiting.pop(share, None)
        self._read.pop(share, None)

    def serve(self, newcomer: Share | None = None) -> None:
        """In the order in which they came. One that waits for others of its site holds up no other site. One that
        waits for much does not hold up those that want little, nor another tier that still has some of its own."""
        held_up = set[Tier | str]()
        """Tiers whose first one waits, and sites of which one waits that wants much."""
        for_passing = self._for_passing
        for share in tuple(self._waiting):
            if share not in self._waiting:
                continue
            tier, site = share.tier, share.site
            size, free = self._bounded(share.wanted, tier), self.free(tier)
            taken = self._by_site.get(site, 0) - self._passed.get(site, 0)
            own = self.kept[tier] - self._by_tier[tier]
            passes = bool(held_up & {tier, site}) or (size > own and not held_up.isdisjoint(Tier))
            if passes and size > self._little:
                if site not in held_up:
                    held_up.add(tier)
                continue
            if passes:
                free = min(free, for_passing - self._passed.total())
                taken = self._passed.get(site, 0)
            if taken and taken + size > free - size:
                if size > self._little:
                    held_up.add(site)
                continue
            if size > free:
                if not passes:
                    held_up.add(tier)
                    for_passing = min(for_passing, self._most(tier) - size)
                continue
            granted = self._waiting.pop(share)
            share.has_passed = passes
            self.change(share, size)
            if share.reading is not None:
                self._read[share] = share.reading.come
            if share is not newcomer:
                granted()
        if self._waiting and self._read and self._look is None:
            self._look = asyncio.get_running_loop().call_later(STALL_SECONDS, self._look_for_stalled)

    def _bounded(self, size: int, tier: Tier) -> int:
        return max(1, min(size, self._most(tier)))

    def _most(self, tier: Tier) -> int:
        """What a tier may have if nobody else has any."""
        return self._limit - sum(self.kept) + self.kept[tier]

    def _look_for_stalled(self) -> None:
        """Somebody has waited: have those that stall give back what they hold. Hosts may be known better by now."""
        self._look = None
        for share in self._waiting:
            share.look_again()
        for share, before in tuple(self._read.items()):
            reading = share.reading
            if self._waiting and share in self._read and reading is not None:
                self._read[share] = reading.come
                if reading.come - before < LITTLE:
                    reading.make_room()
        self.serve()


class Share:
    """What one answer takes of it."""

    def __init__(self, memory: FetchMemory, site: str, tier: Callable[[], Tier]) -> None:
        self._memory = memory
        self._tier = tier
        self.site = site
        self.tier = tier()
        """As it was when it was asked for."""
        self.size = 0
        self.has_passed = False
        """Whether it has that before others who came earlier."""
        self.wanted = 0
        self.reading: IncomingAnswer | None = None
        """An answer that takes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.give_back()

    def look_again(self) -> None:
        """It holds nothing yet, so it is served by what is known now."""
        self.tier = self._tier()

    def ask(self, answer_bytes: int, reading: IncomingAnswer) -> bool:
        """For an answer that is being read. False: there is none now; it is told when there is."""
        return self._ask(READ_COPIES * answer_bytes, reading.go_on, reading)

    def try_to_take(self, size: int) -> bool:
        """Without waiting, and without overtaking anybody who waits."""
        if self._ask(size, lambda: None):
            return True
        self.give_back()
        return False

    async def take(self, size: int = 0) -> None:
        """Wait for it; if nobody knows how much it will be, for as much as there always is in time."""
        there = asyncio.Event()
        if not self._ask(size or self._memory.kept[self._tier()], there.set):
            await there.wait()

    def _ask(self, size: int, granted: Callable[[], None], reading: IncomingAnswer | None = None) -> bool:
        """A share that holds some gives it back first."""
        self.give_back()
        self.look_again()
        self.wanted = size
        self.reading = reading
        return self._memory.ask(self, granted)

    def keep(self, size: int) -> None:
        """It is now known how much is needed. What nobody asked for, because it is little, is taken without waiting."""
        self._memory.withdraw(self)
        self._memory.change(self, size)
        self._memory.serve()

    def doubt(self) -> None:
        """It may be held for long, through no fault of the host: what is reserved for such hosts is left to others.

        What it holds stays taken meanwhile: nobody else gets it.
        """
        size = self.size
        self._memory.change(self, 0)
        self.tier = Tier.DOUBTFUL
        self.keep(size)

    def give_back(self) -> None:
        if self.size:
            self.keep(0)
        else:
            self._memory.withdraw(self)


class RequestMemory:
    """For requests: from when their records are read until they have left.

    A request that is about to be read counts as its row says. One that finds no room is tried again when somebody else
    has given some back: `freed` is called with the lanes that have asked in vain.
    """

    def __init__(self, limit: int, *, freed: Callable[[Iterable[str]], None]) -> None:
        self._memory = FetchMemory(limit)
        self._freed = freed
        self._held: defaultdict[str, list[Share]] = defaultdict(list)
        """By lane."""
        self._short: dict[Tier, dict[str, int]] = {tier: {} for tier in Tier}
        """Lanes that have asked in vain, and for how much."""

    @property
    def taken(self) -> int:
        return self._memory.taken

    @property
    def most(self) -> int:
        return self._memory.most

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for some."""
        return any(self._short.values())

    def room(self, lane: str, site: str, size: int, tier: Tier) -> int:
        """How many requests of a lane there is room for, if their rows say that they are at most this large."""
        room = self._memory.room(site, START_COPIES * size, tier)
        for short in self._short.values():
            short.pop(lane, None)
        if not room:
            self._short[tier][lane] = START_COPIES * size
        return room

    def hold(self, lane: str, site: str, size: int, tier: Tier) -> None:
        """Take room for a request that is to be read."""
        share = self._memory.share(site, lambda: tier)
        share.keep(START_COPIES * size)
        self._held[lane].append(share)

    def let_go(self, lane: str) -> None:
        """Give that room back."""
        self._give_back(self._held[lane].pop())
        if not self._held[lane]:
            del self._held[lane]

    def has_room(self, site: str, size: int, tier: Tier) -> bool:
        """For a request that was read and has to be read again."""
        return size <= LITTLE or self.room(site, site, size, tier) > 0

    def keep(self, site: str, request: OutboundRequest, tier: Tier) -> Callable[[], None]:
        """A request is about to be sent; returns what to call when it has left."""
        share = self._memory.share(site, lambda: tier)
        share.keep(size_of(request))
        return partial(self._give_back, share)

    def _give_back(self, share: Share) -> None:
        if share.size:
            share.give_back()
            if self.is_short:
                asyncio.get_running_loop().call_soon(self._tell)  # whoever gives back may be in the middle of something

    def _tell(self) -> None:
        """As many as there may be room for, in the order of asking: asking all of them each time would be slow."""
        told = [lane for tier, short in self._short.items() for lane in _first(short, self._memory.free(tier))]
        for short in self._short.values():
            for lane in told:
                short.pop(lane, None)
        if told:
            self._freed(told)


def _first(short: dict[str, int], free: int) -> Iterator[str]:
    """Those that fit into what is free, and in any case the first: it may be larger than what will ever be free."""
    for lane, size in short.items():
        yield lane
        free -= size
        if free <= 0:
            return


def counted_as(size: int) -> int:
    """Which of the sizes a request counts as until it is read."""
    return next((step for step in REQUEST_SIZES[1:] if size <= step), REQUEST_SIZES[-1]) if size > LITTLE else 0


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
    return 0 if response is None else READ_COPIES * (len(response.body) + _head_size(response))


def while_offered(outcome: Outcome | None) -> int:
    """What it takes until its origin has it, and that is in the store."""
    if outcome is None or outcome.response is None:
        return 0
    body, headers = outcome.response.body, _head_size(outcome.response)
    read = len(body) + headers
    return read + max(STORED_COPIES * read, SENT_COPIES * (written_bytes(body) + headers))


def _head_size(response: Response) -> int:
    return headers_size(response.headers) + sum(HEADER_BYTES + len(cookie) for cookie in response.set_cookies)


def written_bytes(body: bytes) -> int:
    """How long a body may become as JSON."""
    return len(body) + (_MOST_ESCAPED - 1) * (len(body) - len(body.translate(None, _ESCAPED)))
