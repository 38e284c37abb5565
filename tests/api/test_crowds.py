"""More peers than there are places: who stays, who gives way, and what is answered in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mainspring.api.app import build_app
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener, listening
from mainspring.api.peers import RESERVE, SENT_AWAY, Peers, network_of
from tests.api.edge import Peer, connections_are, peers, request, status
from tests.support.exchanges import exchange
from tests.support.service_doubles import Edge

PLACES = 8
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    limits = Limits(connections=PLACES)
    async with listening(build_app(Edge().api), host="127.0.0.1", port=0, limits=limits, drain_seconds=1) as listener:
        yield listener


async def is_closed(peer: Peer) -> bool:
    try:
        async with asyncio.timeout(0.1):
            while await peer[0].read(65_536):
                pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


async def test_the_peer_without_a_token_that_was_idle_longest_makes_room(listener: Listener) -> None:
    async with asyncio.timeout(5), peers(listener, PLACES) as held:
        assert status(await exchange(listener.port, request())) == 200
        assert [await is_closed(peer) for peer in held] == [True] + [False] * (PLACES - 1)


async def test_peers_without_a_token_can_come_for_ever_and_lock_out_nobody(listener: Listener) -> None:
    async with asyncio.timeout(10), peers(listener, PLACES):
        for _ in range(5):
            async with peers(listener, PLACES):
                assert status(await exchange(listener.port, request())) == 200
                assert status(await exchange(listener.port, HEALTH)) == 200


async def test_who_has_shown_a_token_stays(listener: Listener) -> None:
    async with asyncio.timeout(5), peers(listener, 1, request(close=False)) as known, peers(listener, 3 * PLACES):
        assert not await is_closed(known[0])


async def test_a_wrong_token_shows_nothing(listener: Listener) -> None:
    wrong = request(close=False).replace(b"Bearer ", b"Bearer x")
    async with asyncio.timeout(5), peers(listener, 1, wrong) as stranger, peers(listener, PLACES):
        assert await is_closed(stranger[0])


async def test_among_peers_with_a_token_the_one_that_was_idle_longest_makes_room(listener: Listener) -> None:
    async with asyncio.timeout(5), peers(listener, PLACES, request(close=False)) as held:
        assert status(await exchange(listener.port, request())) == 200
        assert [await is_closed(peer) for peer in held] == [True] + [False] * (PLACES - 1)


async def test_a_stranger_that_takes_no_answer_makes_room() -> None:
    async def huge(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": bytes(20_000_000)})  # type: ignore[operator]

    async with (
        asyncio.timeout(5),
        listening(huge, host="127.0.0.1", port=0, limits=Limits(connections=1), drain_seconds=0.1) as listener,
        peers(listener, 1) as held,
    ):
        held[0][1].write(HEALTH)
        await asyncio.sleep(0.1)
        async with peers(listener, 1):
            await connections_are(listener, 1)


async def test_when_everybody_waits_for_an_answer_health_is_still_told_and_the_rest_refused() -> None:
    release = asyncio.Event()
    app = build_app(Edge().api)

    async def slow(scope: object, receive: object, send: object) -> None:
        if scope["query_string"] == b"wait":  # type: ignore[index]
            if scope["path"] != "/health":  # type: ignore[index]
                scope["state"]["recognise"]()  # type: ignore[index]
            await release.wait()
        await app(scope, receive, send)  # type: ignore[arg-type]

    limits = Limits(connections=PLACES)
    async with (
        asyncio.timeout(10),
        listening(slow, host="127.0.0.1", port=0, limits=limits, drain_seconds=1) as listener,
    ):
        waits = request(path="/v1/timers/list?wait")
        waiting = [asyncio.create_task(exchange(listener.port, waits)) for _ in range(PLACES)]
        await connections_are(listener, PLACES)
        await asyncio.sleep(0.05)
        assert status(await exchange(listener.port, HEALTH)) == 200
        refused = await exchange(listener.port, request(close=False))
        assert status(refused) == 503
        assert b"retry-after" in refused
        others = [
            asyncio.create_task(exchange(listener.port, HEALTH.replace(b"health", b"health?wait")))
            for _ in range(RESERVE)
        ]
        await connections_are(listener, PLACES + RESERVE)
        await asyncio.sleep(0.05)
        assert status(await exchange(listener.port)) == 503
        release.set()
        assert {status(await answer) for answer in (*waiting, *others)} == {200}


async def test_one_address_keeps_only_so_many_peers_without_a_token() -> None:
    limits = Limits(request_seconds=1, tokenless_connections=3)
    async with (
        asyncio.timeout(5),
        listening(build_app(Edge().api), host="127.0.0.1", port=0, limits=limits, drain_seconds=1) as listener,
        peers(listener, 2, request(close=False)),
        peers(listener, 7) as strangers,
    ):
        await connections_are(listener, 5)
        assert [await is_closed(peer) for peer in strangers[:4]] == [True] * 4


class Stranger:
    """A connection that is always busy, or never."""

    network = "10.0.0.1"

    def __init__(self, *, busy: bool) -> None:
        self.busy = busy
        self.is_gone = False

    def gives_way(self, *, known: bool, pressed: bool) -> bool:
        return not self.busy

    def dismiss(self) -> None:
        self.is_gone = True


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize(("number", "leaving"), [(1, 0), (3, 0), (4, 1), (3 + 2 * SENT_AWAY, SENT_AWAY)])
def test_with_every_look_around_a_bounded_number_of_strangers_leaves(number: int, leaving: int, busy: bool) -> None:
    crowd = Peers(limit=1000, stranger_limit=3)
    strangers = [Stranger(busy=busy) for _ in range(number)]
    assert all(crowd.admit(stranger) for stranger in strangers)
    crowd.look_around()
    told = [stranger for stranger in strangers if crowd.is_beyond(stranger)]
    assert told == (strangers[:leaving] if busy else [])
    assert sum(stranger.is_gone for stranger in strangers) == (0 if busy else leaving)


def test_beside_strangers_who_are_all_being_answered_a_token_gets_a_place_and_one_of_them_leaves() -> None:
    crowd = Peers(limit=4, stranger_limit=100)
    strangers = [Stranger(busy=True) for _ in range(4)]
    friends = [Stranger(busy=True) for _ in range(5)]
    for member in (*strangers, *friends):
        assert crowd.admit(member)
    assert [crowd.recognise(friend) for friend in friends] == [True] * 4 + [False]
    assert all(crowd.is_beyond(stranger) for stranger in strangers)


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_the_addresses_that_one_customer_gets_count_as_one(first: str, second: str, alike: bool) -> None:
    assert (network_of(first) == network_of(second)) is alike
