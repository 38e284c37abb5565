"""Answers of fetches together take no more memory than they may, however many there are and whatever is in them."""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mainspring.clock import SystemClock
from mainspring.cluster.instance import Instance
from mainspring.delivery.answer import FIRST_ROOM, AnswerReader, UnreadableAnswer
from mainspring.delivery.call import Call, IncomingAnswer
from mainspring.delivery.connection import READ_BYTES
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.fetches.call import call
from mainspring.fetches.memory import (
    READ_COPIES,
    SENT_COPIES,
    FetchMemory,
    Share,
    size_of,
    while_offered,
    while_recorded,
    written_bytes,
)
from mainspring.fetches.messages import OutboundRequest
from mainspring.fetches.outcome import Outcome, Response
from mainspring.kernel.shares import Tier
from mainspring.testing.target import Answer, TargetServer
from tests.fetches.small_memory import LIMIT, running
from tests.support.fetch_requests import asking, ended


def _memory_of(instance: Instance) -> FetchMemory:
    return instance.fetches_assembly.memory  # nobody else needs to know


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/mainspring.db"])
async def test_answers_together_take_no_more_than_their_bound_with_what_json_makes_of_them(
    tmp_path: Path, store: str
) -> None:
    body = b"\x01" * 100_000
    async with (
        running(tmp_path, store.format(tmp_path)) as instance,
        TargetServer() as target,
        TargetServer() as origin,
    ):
        target.script("/", Answer(body=body))
        origin.script("/", Answer(delay_seconds=0.02))
        views = [
            await instance.fetches.create(asking(target.url, result_url=origin.url, timeout_seconds=30))
            for _ in range(60)
        ]
        await origin.wait_for(60, seconds=20)
        memory = _memory_of(instance)
        assert len(body) < memory.most <= LIMIT
        for view in views:
            assert (await ended(instance.fetches, view.req_id)).state == "succeeded"
        told = [msgspec.json.decode(request.body)["response"] for request in origin.requests]
        assert {len(response["body"]) for response in told} == {len(body)}, "everybody got all of it, in the end"
        async with asyncio.timeout(5):
            while memory.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_what_json_makes_of_a_body_is_counted() -> None:
    for body in (b"abc", b"\x01" * 10, b'"\\\n', "é€😀".encode()):
        assert len(msgspec.json.encode(body.decode())) - 2 <= written_bytes(body) <= 6 * len(body)


# --- who gets room ----------------------------------------------------------------------------------------------------


def _ask(memory: FetchMemory, site: str, size: int, told: list[str], tier: Tier = Tier.TRUSTED) -> Share:
    share = memory.share(site, lambda: tier)
    share.wanted = size
    if memory.ask(share, lambda: told.append(site)):
        told.append(site)
    return share


def test_who_came_first_is_served_first_and_a_small_one_does_not_pass_a_large_one() -> None:
    memory, told = FetchMemory(100), list[str]()
    first = _ask(memory, "a", 40, told)
    _ask(memory, "b", 45, told)
    _ask(memory, "c", 10, told)
    assert told == ["a"]
    first.give_back()
    assert told == ["a", "b", "c"]
    assert memory.taken == 55


def test_a_site_takes_no_more_than_it_leaves_and_holds_nobody_up_who_waits_behind_it() -> None:
    memory, told = FetchMemory(100), list[str]()
    shares = [_ask(memory, "greedy", 5, told) for _ in range(20)]
    assert told == ["greedy"] * 5
    _ask(memory, "modest", 30, told)
    assert told[-1] == "modest"
    for share in shares:
        share.give_back()
    assert memory.taken == 30


class Crowd:
    """Little answers of which one comes whenever another goes, so that they take all that they get."""

    def __init__(self, memory: FetchMemory, sites: int, tier: Tier, size: int) -> None:
        self._memory, self._sites, self._tier, self._size = memory, sites, tier, size
        self._held: deque[Share] = deque()
        self._next = 0
        self.served = 0
        while self._next == self.served:
            self._come()

    def _come(self) -> None:
        site, self._next = f"crowd {self._next % self._sites}", self._next + 1
        share = self._memory.share(site, lambda: self._tier)
        share.wanted = self._size
        if self._memory.ask(share, lambda: self._go_on(share)):
            self._go_on(share)

    def _go_on(self, share: Share) -> None:
        self.served += 1
        self._held.append(share)

    def turn(self) -> None:
        """Another one comes, and the one that has been here longest goes."""
        self._come()
        self._held.popleft().give_back()


@pytest.mark.parametrize("site", ["other", "crowd 0"])
@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("crowd_tier", Tier)
def test_little_answers_that_never_stop_coming_do_not_keep_a_large_one_from_its_room_nor_stop_for_it(
    crowd_tier: Tier, tier: Tier, site: str
) -> None:
    memory, told = FetchMemory(64_000), list[str]()
    crowd = Crowd(memory, 4, crowd_tier, 900)
    _ask(memory, site, 10_000, told, tier)
    before, turns = crowd.served, 0
    while not told:
        crowd.turn()
        turns += 1
        assert turns < 100, "until those who came before have gone"
    assert crowd.served - before >= turns // 8


def test_a_large_answer_for_which_no_room_comes_holds_up_no_little_one() -> None:
    memory, told = FetchMemory(64_000), list[str]()
    for n in range(5):
        _ask(memory, f"slow {n}", 4_000, told)
    told.clear()
    _ask(memory, "large", 20_000, told)
    shares = deque(_ask(memory, f"little {n}", 1_000, told) for n in range(8))
    assert told == [f"little {n}" for n in range(8)], "some at a time"
    for n in range(8, 100):
        shares.popleft().give_back()
        shares.append(_ask(memory, f"little {n}", 1_000, told))
        assert told[-1] == f"little {n}", "for as long as that takes"


@pytest.mark.parametrize("tier", Tier)
def test_each_tier_has_memory_that_no_other_takes_and_its_line_holds_up_no_other(tier: Tier) -> None:
    memory, told = FetchMemory(1600), list[str]()
    for other in Tier:
        for n in range(100):
            if other is not tier:
                _ask(memory, f"{other.name} {n}", 50, told, other)
    assert 1200 < memory.taken < 1600
    assert len(memory._waiting) > 0
    _ask(memory, "mine", 100, told, tier)
    assert told[-1] == "mine"


def test_what_tiers_share_goes_to_who_came_first_and_others_take_their_own_meanwhile() -> None:
    memory, told = FetchMemory(1600), list[str]()
    holder = _ask(memory, "holder", 600, told, Tier.UNTRIED)
    _ask(memory, "large", 800, told, Tier.TRUSTED)
    _ask(memory, "own", 300, told, Tier.PROVEN)
    _ask(memory, "more", 300, told, Tier.PROVEN)
    assert told == ["holder", "own"]
    holder.give_back()
    assert told == ["holder", "own", "large"], "not the second, which would have taken what the first waits for"


def test_what_may_be_held_for_long_takes_nothing_of_what_is_kept_for_hosts_that_answer() -> None:
    memory, told = FetchMemory(1600), list[str]()
    held = _ask(memory, "a", 900, told)
    _ask(memory, "b", 100, told)
    assert told == ["a"]
    held.doubt()
    assert told == ["a", "b"]
    held.give_back()
    assert memory.taken == 100


def test_all_that_may_be_held_for_long_together_is_bounded() -> None:
    memory, told = FetchMemory(1600), list[str]()
    tiers = (Tier.TRUSTED, Tier.PROVEN, Tier.UNTRIED)
    shares = [_ask(memory, f"{n}", 200, told, tiers[n % 3]) for n in range(60)]
    for _ in range(60):
        for share in shares:
            if share.size:
                share.doubt()
    assert memory.taken <= memory.most <= 1600
    for share in shares:
        share.give_back()
    assert memory.taken == 0


async def test_who_waits_for_room_is_served_by_what_is_known_of_it_by_then() -> None:
    memory, told, known = FetchMemory(1600), list[str](), Tier.TRUSTED
    holder = memory.share("a", lambda: Tier.TRUSTED)
    assert holder.try_to_take(900)
    waiting = memory.share("b", lambda: known)
    waiting.wanted = 200
    assert not memory.ask(waiting, lambda: told.append("b"))
    known = Tier.UNTRIED
    memory._look_for_stalled()
    assert told == ["b"]


def test_more_than_there_is_goes_when_it_is_alone() -> None:
    memory, told = FetchMemory(100), list[str]()
    with _ask(memory, "a", 1000, told):
        assert memory.taken == 58, "all but what is kept for other tiers"
    assert memory.taken == 0


async def test_who_goes_away_while_it_waits_takes_nothing() -> None:
    memory, told = FetchMemory(100), list[str]()
    first = _ask(memory, "a", 100, told)

    async def wait() -> None:
        with memory.share("b", lambda: Tier.TRUSTED) as share:
            await share.take(100)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    first.give_back()
    assert memory.taken == 0


# --- answers that wait ------------------------------------------------------------------------------------------------


class Doorkeeper:
    """Lets nobody in until it is told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.was_asked = asyncio.Event()
        self._reading: IncomingAnswer | None = None
        self._is_open = False

    def ask(self, answer_bytes: int, reading: IncomingAnswer) -> bool:
        self.asked.append(answer_bytes)
        self.was_asked.set()
        self._reading = reading
        return self._is_open

    def give_back(self) -> None:
        pass

    def open(self) -> None:
        self._is_open = True
        assert self._reading is not None
        self._reading.go_on()


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender(guard=Guard(allow_loopback=True), answer_bytes=1_000_000) as made:
        yield made


def _get(url: str, room: Doorkeeper, timeout_ms: int = 10_000) -> Call:
    return Call("GET", url, (), b"", timeout_ms, fresh=True, room=room)


BODY = b"abc" * 100_000
PACKED = Answer(body=gzip.compress(BODY), headers=(("content-encoding", "gzip"),))


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (Answer(body=BODY), len(BODY)),
        (Answer(body=BODY, behaviour="chunked"), len(BODY)),
        (Answer(body=BODY, behaviour="until-close"), len(BODY)),
        (PACKED, 1_000_000),
    ],
)
async def test_an_answer_is_read_no_further_until_there_is_room_and_then_whole(
    sender: Sender, target: TargetServer, answer: Answer, wanted: int
) -> None:
    target.script("/", answer)
    room = Doorkeeper()
    call = asyncio.create_task(sender.send(_get(target.url, room)))
    async with asyncio.timeout(5):
        await room.was_asked.wait()
    await asyncio.sleep(0.05)
    assert not call.done()
    room.open()
    reply = await call
    assert room.asked == sorted(room.asked), "more and more, as it comes"
    assert wanted <= room.asked[-1] <= 1_000_000
    assert (reply.status, reply.truncated, reply.body) == (200, False, BODY)


async def test_a_small_answer_asks_for_no_room(sender: Sender, target: TargetServer) -> None:
    room = Doorkeeper()
    reply = await sender.send(_get(target.url, room))
    assert (reply.status, room.asked) == (200, [])


@pytest.mark.parametrize("answer", [Answer(status=201, body=BODY), PACKED])
async def test_an_answer_without_room_in_time_counts_without_its_body(
    sender: Sender, target: TargetServer, answer: Answer
) -> None:
    target.script("/", answer)
    reply = await sender.send(_get(target.url, Doorkeeper(), timeout_ms=200))
    assert (reply.status, reply.truncated, reply.body, reply.problem) == (answer.status, True, b"", "")


@pytest.mark.parametrize("head", [b"content-length: 1000000", b"content-encoding: gzip", b"x-nothing: told"])
def test_an_answer_that_has_hardly_begun_wants_hardly_any_room(head: bytes) -> None:
    reader = AnswerReader(1_000_000)
    reader.begin(bodiless=False)
    reader.feed(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + b"x" * 5_000)
    assert reader.wanted == FIRST_ROOM


@pytest.mark.parametrize(
    ("head", "wanted"),
    [(b"content-length: 300000", 300_000), (b"content-length: 3000000", 1_000_000), (b"x-nothing: told", 1_000_000)],
)
def test_an_answer_that_waits_for_more_room_has_little(head: bytes, wanted: int) -> None:
    reader = AnswerReader(1_000_000)
    reader.begin(bodiless=False)
    reader.feed(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + b"x" * FIRST_ROOM)
    assert reader.wanted == FIRST_ROOM
    reader.feed(b"x")
    assert reader.wanted == wanted, "all that may come, so that it need not ask again"


async def test_an_answer_that_is_asked_to_wait_has_brought_little(sender: Sender) -> None:
    held, asked = 0, asyncio.Event()

    class Room:
        def ask(self, answer_bytes: int, reading: IncomingAnswer) -> bool:
            asked.set()
            return False

        def give_back(self) -> None:
            pass

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1_000_000)
        await asked.wait()
        await asyncio.sleep(0.05)
        held = sum(len(connection._reader._body) for connection in sender._pool._open)
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        call = Call("GET", f"http://127.0.0.1:{port}", (), b"", 500, fresh=True, room=Room())
        await sender.send(call)
    assert 0 < held <= READ_BYTES


def test_an_answer_has_a_bounded_number_of_headers_and_lets_go_of_them() -> None:
    reader = AnswerReader(1_000)
    reader.begin(bodiless=False)
    with pytest.raises(UnreadableAnswer, match="more than 256 headers"):
        reader.feed(b"HTTP/1.1 200 OK\r\n" + b"a:\r\n" * 300)
    reader.drop()
    assert not reader._headers


class Landlord(Doorkeeper):
    """Lets everybody in, and asks them to make room."""

    def __init__(self) -> None:
        super().__init__()
        self._is_open = True

    async def evict(self, after: int) -> None:
        async with asyncio.timeout(5):
            while self._reading is None or self._reading.come < after:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        self._is_open = False
        self._reading.make_room()


@asynccontextmanager
async def stalling(first: int, rest: int, go_on: asyncio.Event) -> AsyncIterator[str]:
    """Answers with so many bytes, and the rest when it is told to."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (first + rest) + b"x" * first)
        await go_on.wait()
        writer.write(b"y" * rest)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        go_on.set()
        await asyncio.sleep(0.01)


async def test_an_answer_that_stalls_makes_room_and_is_read_on_in_its_turn(sender: Sender) -> None:
    room, go_on = Landlord(), asyncio.Event()
    async with stalling(5_000, 50_000, go_on) as url:
        call = asyncio.create_task(sender.send(_get(url, room)))
        await room.evict(5_000)
        go_on.set()
        await asyncio.sleep(0.05)
        assert not call.done()
        room.open()
        reply = await call
    assert (reply.body, reply.truncated) == (b"x" * 5_000 + b"y" * 50_000, False)


async def test_an_answer_that_stalls_and_gets_no_more_room_has_not_come_in_time(sender: Sender) -> None:
    room, go_on = Landlord(), asyncio.Event()
    async with stalling(5_000, 50_000, go_on) as url:
        call = asyncio.create_task(sender.send(_get(url, room, timeout_ms=300)))
        await room.evict(5_000)
        reply = await call
    assert (reply.status, reply.problem) == (None, "timeout")


async def test_of_a_long_answer_that_stalls_while_others_wait_counts_what_has_come(sender: Sender) -> None:
    room, go_on = Landlord(), asyncio.Event()
    async with stalling(100_000, 50_000, go_on) as url:
        call = asyncio.create_task(sender.send(_get(url, room)))
        await room.evict(100_000)
        async with asyncio.timeout(1):
            reply = await call
    assert (reply.status, reply.body, reply.truncated) == (200, b"x" * 100_000, True)


async def test_the_answer_of_a_redirect_leaves_its_room_to_the_next(sender: Sender, target: TargetServer) -> None:
    target.script("/from", Answer(status=302, body=BODY, headers=(("location", "/to"),)))
    memory = FetchMemory(10_000_000)
    request = OutboundRequest(url=f"{target.url}/from", max_redirects=1)
    with memory.share("a", lambda: Tier.TRUSTED) as share:
        called = await call(sender, request, req_id="r", timeout_ms=5_000, clock=SystemClock(), room=share)
        assert memory.taken == 0
    assert called.reply.status == 200
    assert memory.most > len(BODY)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_headers_count() -> None:
    headers = {f"h{number}": "x" * 200 for number in range(200)}
    response = Response(status=200, headers=headers, body=b"", url="http://a")
    outcome = Outcome(state="succeeded", finished_at=0, duration_ms=0, response=response)
    assert while_recorded(outcome) > READ_COPIES * 200 * 200
    assert while_offered(outcome) > SENT_COPIES * len(msgspec.json.encode(headers))
    assert size_of(OutboundRequest(url="http://a", headers=headers)) > 200 * 200


async def test_an_answer_with_large_headers_asks_for_room(sender: Sender, target: TargetServer) -> None:
    target.script("/", Answer(headers=tuple((f"h{number}", "x" * 1000) for number in range(50))))
    room = Doorkeeper()
    call = asyncio.create_task(sender.send(_get(target.url, room)))
    async with asyncio.timeout(5):
        await room.was_asked.wait()
    assert room.asked[-1] > 50_000
    room.open()
    assert (await call).headers["h49"] == "x" * 1000


def test_who_wants_little_does_not_wait_behind_who_wants_much() -> None:
    memory = FetchMemory(6_400)
    told: list[str] = []
    holder = _ask(memory, "a", 3_000, told)
    _ask(memory, "b", 3_500, told)
    _ask(memory, "c", 100, told)
    assert told == ["a", "c"]
    holder.give_back()
    assert told == ["a", "c", "b"]
