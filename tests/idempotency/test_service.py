"""Idempotency keys over HTTP: listed, shown, settled and forgotten by whoever runs the server."""

from __future__ import annotations

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.idempotency import AsyncIdempotentProcessor, UnknownOutcome
from mainspring.idempotency.http.middleware import IdempotencyMiddleware, request_key
from mainspring.idempotency.messages import KeyRef, ListKeys, SettledAnswer, SettleKey
from mainspring.idempotency.service import KeyService
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.stores.memory import MemoryStore
from mainspring.testing.fake_client import FakeMainspring
from tests.support.asgi_requests import Client


async def _lost(payload: object) -> object:
    raise UnknownOutcome("no answer")


class Place:
    def __init__(self) -> None:
        self.store = RecordsStore(MemoryStore(SystemClock()))
        self.keys = KeyService(self.store)

    def processor(self, scope: str, **options: object) -> AsyncIdempotentProcessor[object, object]:
        return AsyncIdempotentProcessor(self.store, _lost, scope=scope, **options)  # type: ignore[arg-type]

    async def lose(self, scope: str, *keys: str, **options: object) -> None:
        processor = self.processor(scope, **options)
        for key in keys:
            with pytest.raises(UnknownOutcome):
                await processor.process(1, key)


@pytest.fixture
def place() -> Place:
    return Place()


async def test_pages_of_unknown_keys_come_to_an_end(place: Place) -> None:
    await place.lose("a", *(f"k{number}" for number in range(5)))
    await place.lose("b", "k")
    request, seen = ListKeys(limit=2), []
    while True:
        page = await place.keys.list(request)
        seen += [(key.scope, key.key) for key in page.keys]
        if page.next_cursor is None:
            break
        request = ListKeys(limit=2, cursor=page.next_cursor)
    assert sorted(seen) == [*(("a", f"k{number}") for number in range(5)), ("b", "k")]
    assert [key.key for key in (await place.keys.list(ListKeys(scope="b"))).keys] == ["k"]
    assert (await place.keys.list(ListKeys(scope="c"))).keys == ()


async def test_a_key_is_settled_with_what_its_function_returns(place: Place) -> None:
    await place.lose("shop", "k")
    with pytest.raises(InvalidInput, match="Expected result for this key, got answer"):
        await place.keys.settle(SettleKey(scope="shop", key="k", answer=SettledAnswer()))
    with pytest.raises(InvalidInput, match="got none"):
        await place.keys.settle(SettleKey(scope="shop", key="k"))
    settled = await place.keys.settle(SettleKey(scope="shop", key="k", result=b'{"receipt":  17}'))  # type: ignore[arg-type]
    assert (settled.state, settled.result_bytes) == ("done", 16)
    record = await place.processor("shop").process(1, "k")
    assert (record.result, record.was_replay) == ({"receipt": 17}, True)
    with pytest.raises(Conflict, match="is done"):
        await place.keys.settle(SettleKey(scope="shop", key="k", result=b"1"))  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="nothing is recorded"):
        await place.keys.settle(SettleKey(scope="shop", key="other", result=b"1"))  # type: ignore[arg-type]


async def test_bytes_are_settled_as_base64(place: Place) -> None:
    await place.lose("bytes", "k", result_type=bytes)
    with pytest.raises(InvalidInput, match="Expected base64"):
        await place.keys.settle(SettleKey(scope="bytes", key="k", result_base64="?"))
    await place.keys.settle(SettleKey(scope="bytes", key="k", result_base64="AP8="))
    assert (await place.processor("bytes", result_type=bytes).process(1, "k")).result == b"\x00\xff"


async def test_a_key_of_a_request_is_settled_with_an_answer(place: Place) -> None:
    async def breaks(scope: object, receive: object, send: object) -> None:
        raise ZeroDivisionError

    middleware = IdempotencyMiddleware(breaks, store=place.store, on_exception="unknown")
    call = Client(middleware)
    with pytest.raises(ZeroDivisionError):
        await call(key="order")
    [found] = (await place.keys.list(ListKeys())).keys
    assert (found.scope, found.result) == ("http", "answer")
    assert found.key == request_key(principal="", method="POST", route="/orders", key="order")
    answer = SettledAnswer(status=201, headers={"content-type": "text/plain"}, body="ordered")
    await place.keys.settle(SettleKey(scope="http", key=found.key, answer=answer))
    again = await call(key="order")
    assert (again.status, again.body, again.was_replayed) == (201, b"ordered", True)


async def test_a_forgotten_key_may_run_again(place: Place) -> None:
    await place.lose("shop", "k")
    assert (await place.keys.forget(KeyRef(scope="shop", key="k"))).state == "free"
    assert (await place.keys.list(ListKeys())).keys == ()
    for key in ("k", "never"):
        with pytest.raises(NotFound):
            await place.keys.forget(KeyRef(scope="shop", key=key))


async def test_clients_have_the_same() -> None:
    fake = await FakeMainspring.start()
    processor = AsyncIdempotentProcessor(RecordsStore(fake._instance.store), _lost, scope="shop")
    for key in ("a", "b"):
        with pytest.raises(UnknownOutcome):
            await processor.process(1, key)
    async with fake.async_client() as client:
        assert sorted([key.key async for key in client.keys.iterate(scope="shop", page_size=1)]) == ["a", "b"]
        assert (await client.keys.get("shop", "a")).reason == "no answer"
        assert (await client.keys.settle("shop", "a", result=None)).state == "done"
        assert (await client.keys.forget("shop", "b")).state == "free"
        assert (await client.keys.list()).keys == ()
        with pytest.raises(NotFound):
            await client.keys.get("shop", "c")
    assert (await processor.process(1, "a")).result is None
