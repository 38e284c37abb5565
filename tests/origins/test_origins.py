"""Origins inside a program: units, results and their effects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import msgspec
import pytest

from mainspring import Mainspring
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import InvalidInput, NotFound, TooLarge, Unavailable
from mainspring.fetches.messages import CreateFetch, FetchView, OutboundRequest
from mainspring.origins import (
    FetchError,
    FetchNetworkError,
    FetchWatchdog,
    Origin,
    RequestSync,
    ResponseSync,
    proxy_fetch,
)
from mainspring.origins.document import ORIGINS, STATE_BYTES, WAITING_LIMIT
from mainspring.origins.outbox import OUTBOX, Outbox
from mainspring.processes.executor import RemoteExecutor, reachable
from mainspring.testing.target import Answer, TargetServer

SECONDS = 10
T = TypeVar("T")
CLOSED_PORT = "http://127.0.0.1:9/"


class Accounts(Origin):
    """`results` are what the continuations got, in words."""

    def ask(self, url: str, *, method: str = "noted") -> str:
        self.state["asked"] = self.state.get("asked", 0) + 1
        return self.svc.proxy_fetch(url, getattr(self.ctn(), method)("ctx"))

    def ask_by_function(self, url: str) -> str:
        return proxy_fetch(self, RequestSync(url, json={"id": self.id}), self.ctn().noted("plain"), timeout=5)

    def ask_under_a_known_id(self, url: str) -> str:
        req_id = self.new_req_id()
        request = RequestSync(url, json={"reference": req_id})
        self.state["reference"] = self.svc.proxy_fetch(request, self.ctn().noted("known"), req_id=req_id)
        return req_id

    def ask_under(self, url: str, req_id: str) -> None:
        self.svc.proxy_fetch(url, self.ctn().noted("own"), req_id=req_id)

    def ask_twice_under_one_id(self, url: str) -> None:
        req_id = self.new_req_id()
        for _ in range(2):
            self.ask_under(url, req_id)

    def ask_far(self, url: str) -> str:
        return self.svc.proxy_fetch(url, self.ctn().noted("far"), executor="far")

    def noted(self, ctx: str, result: ResponseSync | FetchError) -> None:
        told = f"{result.status}" if isinstance(result, ResponseSync) else type(result).__name__
        self.state.setdefault("results", []).append(f"{ctx} {told}")

    def stubborn(self, ctx: str, result: ResponseSync | FetchError) -> None:
        self.state["results"] = ["never seen"]
        if self.svc.patience.pop() > 0:
            raise ValueError("not yet")
        self.noted(ctx, result)

    def spoil(self, url: str) -> None:
        self.ask(url)
        raise ValueError("spoilt")

    def add(self, amount: int) -> int:
        self.state["balance"] = self.state.get("balance", 0) + amount
        balance: int = self.state["balance"]
        return balance

    def grow(self, size: int) -> None:
        self.state["big"] = "x" * size

    def ask_often(self, url: str, times: int) -> None:
        for _ in range(times):
            self.ask(url)

    def keep_waiting(self) -> None:
        self.state["waited"] = True
        self.svc.gate.wait(SECONDS)


def program(store: str = "memory://", **services: Callable[[], Any]) -> Mainspring:
    return Mainspring(store, allow_loopback=True, origins=[Accounts], services=services)


async def eventually(look: Callable[[], Awaitable[T]], reached: Callable[[T], bool]) -> T:
    """What is seen, once it is so. Nobody tells when."""
    async with asyncio.timeout(SECONDS):
        while True:
            if reached(seen := await look()):
                return seen
            await asyncio.sleep(0.005)


async def results(ms: Mainspring, origin_id: str) -> dict[str, Any]:
    """The state, once there are results in it."""
    return await eventually(ms.origin(Accounts, origin_id).snapshot, lambda state: "results" in state)


async def delivered(ms: Mainspring, req_id: str) -> FetchView:
    return await eventually(lambda: ms.fetches.get(req_id), lambda fetch: fetch.delivery.state == "delivered")


async def refused_once(ms: Mainspring, req_id: str) -> FetchView:
    return await eventually(lambda: ms.fetches.get(req_id), lambda fetch: fetch.delivery.attempts > 0)


# --- results --------------------------------------------------------------------------------------------------


async def test_a_response_comes_to_its_continuation_and_is_acknowledged() -> None:
    async with TargetServer() as target, program() as ms:
        target.script("/hook", Answer(status=503, body=b"{not json"))
        req_id = await ms.origin(Accounts, "ann").ask(f"{target.url}/hook")
        state = await results(ms, "ann")
        assert state == {"asked": 1, "results": ["ctx 503"]}
        fetch = await delivered(ms, req_id)
        assert (fetch.state, fetch.delivery.attempts, fetch.result_url) == ("succeeded", 1, "origin:Accounts/ann")
        assert len(target.requests) == 1


async def test_an_error_comes_with_its_class() -> None:
    async with program() as ms:
        await ms.origin(Accounts, "ann").ask(CLOSED_PORT)
        state = await results(ms, "ann")
        assert state["results"] == [f"ctx {FetchNetworkError.__name__}"]


async def test_the_plain_function_asks_the_same_way() -> None:
    async with TargetServer() as target, program() as ms:
        await ms.origin(Accounts, "ann").call(Accounts.ask_by_function, target.url)
        assert (await results(ms, "ann"))["results"] == ["plain 200"]
        [request] = target.requests
        assert (request.method, request.body) == ("POST", b'{"id":"ann"}')


async def test_a_handler_that_raises_changes_nothing_and_gets_the_result_again() -> None:
    patience = [0, 1]
    async with TargetServer() as target, program(patience=lambda: patience) as ms:
        req_id = await ms.origin(Accounts, "ann").ask(target.url, method="stubborn")
        fetch = await refused_once(ms, req_id)
        assert (fetch.delivery.state, fetch.delivery.detail) == ("waiting", "ValueError: not yet")
        assert await ms.origin(Accounts, "ann").snapshot() == {"asked": 1}
        assert (await delivered(ms, req_id)).delivery.attempts == 2
        assert (await ms.origin(Accounts, "ann").snapshot())["results"] == ["never seen", "ctx 200"]
        assert len(target.requests) == 1


async def test_a_result_that_was_forgotten_changes_nothing() -> None:
    async with TargetServer() as target, program() as ms:
        target.script("/slow", Answer(delay_seconds=0.1))
        ann = ms.origin(Accounts, "ann")
        req_id = await ann.ask(f"{target.url}/slow")
        assert list(await ann.waiting()) == [req_id]
        assert await ann.forget(req_id)
        assert not await ann.forget(req_id)
        await delivered(ms, req_id)
        assert (await ann.snapshot(), await ann.waiting()) == ({"asked": 1}, {})


async def test_a_second_result_for_one_request_has_no_effect() -> None:
    async with TargetServer() as target, program() as ms:
        req_id = await ms.origin(Accounts, "ann").ask(target.url)
        result = (await delivered(ms, req_id)).result
        assert result is not None
        before = await ms.origin(Accounts, "ann").snapshot()
        await ms._origins.receive("Accounts", "ann", result)
        assert await ms.origin(Accounts, "ann").snapshot() == before
        with pytest.raises(Unavailable, match=r"knows \(Accounts\), got 'Others'"):
            await ms._origins.receive("Others", "ann", result)


async def test_a_result_of_a_remote_executor_comes_to_the_program(tmp_path: Path) -> None:
    config = Config(allow_loopback=True, store=f"sqlite:///{tmp_path}/app.db", data_dir=str(tmp_path), port=0)
    async with TargetServer() as target, program(config.store) as ms, RemoteExecutor(config, "far") as remote:
        async with reachable(remote):
            req_id = await ms.origin(Accounts, "ann").ask_far(target.url)
            fetch = await delivered(ms, req_id)
        assert (fetch.executor, fetch.delivery.attempts) == (remote.name, 1)
        assert (await results(ms, "ann"))["results"] == ["far 200"]


# --- units ----------------------------------------------------------------------------------------------------


async def test_a_method_that_raises_has_neither_changed_nor_asked_anything() -> None:
    async with TargetServer() as target, program() as ms:
        ann = ms.origin(Accounts, "ann")
        with pytest.raises(ValueError, match="spoilt"):
            await ann.spoil(target.url)
        assert await ann.snapshot() == {}
        await ann.ask(target.url)
        await results(ms, "ann")
        assert len(target.requests) == 1


async def test_what_can_never_be_fetched_is_refused_at_once() -> None:
    async with program() as ms:
        ann = ms.origin(Accounts, "ann")
        for url in ("ftp://example.com/", "http://10.0.0.1/"):
            with pytest.raises(InvalidInput):
                await ann.ask(url)
        with pytest.raises(AttributeError, match="Expected a public synchronous method"):
            await ann.ask(CLOSED_PORT, method="notde")
        with pytest.raises(AttributeError, match="Expected a public synchronous method of Accounts"):
            ann.widthdraw(5)
        assert await ann.snapshot() == {}


async def test_units_of_one_origin_follow_each_other(tmp_path: Path) -> None:
    async with program(f"sqlite:///{tmp_path}/app.db") as ms:
        balances = await asyncio.gather(*(ms.origin(Accounts, "ann").call(Accounts.add, 1) for _ in range(50)))
        assert sorted(balances) == list(range(1, 51))
        assert ms._origins._units._turns == {}


async def test_programs_that_change_one_origin_together_lose_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    async with program(store) as one, program(store) as two:

        async def work(ms: Mainspring) -> None:
            for _ in range(15):
                await ms.origin(Accounts, "ann").call(Accounts.add, 1)

        await asyncio.gather(work(one), work(two))
        assert await one.origin(Accounts, "ann").snapshot() == {"balance": 30}


async def test_state_and_waiting_are_bounded_and_say_so() -> None:
    async with program() as ms:
        ann = ms.origin(Accounts, "ann")
        with pytest.raises(TooLarge, match=f"state of Accounts/ann to take at most {STATE_BYTES} bytes"):
            await ann.grow(STATE_BYTES)
        await ann.grow(STATE_BYTES - 100)
        with pytest.raises(TooLarge, match="at most 100 fetches in one unit"):
            await ann.ask_often(CLOSED_PORT, 101)
        records, now = ms._instance.store, ms._instance.clock.now_ms()
        full = msgspec.json.encode({"state": {}, "waiting": {f"r{n}": now for n in range(WAITING_LIMIT)}})
        await records.put_record(ORIGINS, "Accounts/bob", full, expect=0, now=now)
        with pytest.raises(TooLarge, match="to wait for at most 1000 results"):
            await ms.origin(Accounts, "bob").ask(CLOSED_PORT)
        assert await records.scan_records(OUTBOX, now=now) == []


async def test_a_unit_that_is_given_up_commits_nothing_and_the_next_one_waits_for_its_thread() -> None:
    gate = Event()
    async with program(gate=lambda: gate) as ms:
        ann = ms.origin(Accounts, "ann")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ann.keep_waiting()
        adding = asyncio.create_task(ann.call(Accounts.add, 1))
        _, waiting = await asyncio.wait([adding], timeout=0.1)
        assert waiting
        gate.set()
        assert await asyncio.wait_for(adding, SECONDS) == 1
        assert await ann.snapshot() == {"balance": 1}


async def test_names_and_ids_are_checked() -> None:
    class Other(Origin, name="Accounts"): ...

    async with program() as ms:
        for wrong in ("", "x" * 256, "a\nb"):
            with pytest.raises(InvalidInput, match="Expected an id"):
                ms.origin(Accounts, wrong)
        with pytest.raises(InvalidInput, match="one origin named 'Accounts'"):
            ms.origin(Other, "ann")
        with pytest.raises(InvalidInput, match="derived from Origin"):
            ms.origin(Origin, "ann")
        await ms.origin(Accounts, "a/b ü").call(Accounts.add, 1)
        assert await ms.origin(Accounts, "a/b ü").snapshot() == {"balance": 1}


async def test_a_server_refuses_addresses_of_origins() -> None:
    request = CreateFetch(request=OutboundRequest(url=CLOSED_PORT), result_url="origin:Accounts/ann")
    async with Instance(Config(allow_loopback=True, store="memory://")) as instance:
        with pytest.raises(InvalidInput, match="http"):
            await instance.fetches.create(request)


# --- what was left behind -----------------------------------------------------------------------------------------


async def test_what_was_asked_for_long_ago_and_left_no_trace_is_told_as_unknown(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    async with program(store) as ms:
        instance = ms._instance
        req_id = await ms.origin(Accounts, "ann").ask(CLOSED_PORT)
        await delivered(ms, req_id)
        [kept] = [kept async for kept in _kept_long_ago(ms, "Accounts", "ann")]
        document = msgspec.json.encode({"state": {}, "waiting": {"req_old": 0}})
        now = instance.clock.now_ms()
        record = await instance.store.get_record(ORIGINS, "Accounts/ann", now=now)
        assert record is not None
        await instance.store.put_record(ORIGINS, "Accounts/ann", document, expect=record.version, now=now)
        await ms._origins._complete(Accounts, kept)
        assert await ms.origin(Accounts, "ann").snapshot() == {"results": [f"ctx {FetchWatchdog.__name__}"]}
        assert [left async for left in Outbox(instance.store, instance.clock).left(older_than=2**60)] == []


async def test_what_was_asked_for_but_not_committed_is_forgotten_and_cannot_be_committed_any_more() -> None:
    async with program() as ms:
        store, clock = ms._instance.store, ms._instance.clock
        outbox = Outbox(store, clock)
        request = CreateFetch(request=OutboundRequest(url=CLOSED_PORT), req_id="req_frozen")
        kept = await outbox.keep("Accounts", "ann", [request])  # and here its program freezes
        await ms._origins._complete(Accounts, kept)
        assert [left async for left in outbox.left(older_than=2**60)] == []
        assert await store.put_record(ORIGINS, "Accounts/ann", b"{}", expect=0, now=clock.now_ms()) is None
        with pytest.raises(NotFound):
            await ms.fetches.get("req_frozen")


async def _kept_long_ago(ms: Mainspring, name: str, origin_id: str) -> Any:
    context = msgspec.json.encode({"method": "noted", "arguments": ["ctx", None], "keywords": {}, "places": [1]})
    fetch = {"request": {"url": CLOSED_PORT}, "reqId": "req_old", "context": msgspec.Raw(context)}
    entry = {"origin": name, "originId": origin_id, "at": 0, "fetches": [fetch]}
    store, clock = ms._instance.store, ms._instance.clock
    await store.put_record(OUTBOX, "0", msgspec.json.encode(entry), expect=0, now=clock.now_ms())
    async for kept in Outbox(store, clock).left(older_than=1):
        yield kept


async def test_an_origin_knows_its_req_id_before_it_asks(target: TargetServer) -> None:
    async with program() as ms:
        req_id = await ms.origin(Accounts, "ann").ask_under_a_known_id(target.url + "/")
        state = await results(ms, "ann")
        assert (state["reference"], state["results"]) == (req_id, ["known 200"])
    [sent] = target.requests
    assert msgspec.json.decode(sent.body) == {"reference": req_id}
    assert sent.headers["idempotency-key"] == req_id


async def test_a_req_id_of_another_unit_or_a_used_one_is_refused(target: TargetServer) -> None:
    async with program() as ms:
        ann = ms.origin(Accounts, "ann")
        used = await ann.ask_under_a_known_id(target.url + "/")
        for ask in (
            ann.ask_under(target.url, used),
            ann.ask_under(target.url, "payment-1"),
            ann.ask_twice_under_one_id(target.url),
        ):
            with pytest.raises(InvalidInput, match=r"self\.new_req_id"):
                await ask
