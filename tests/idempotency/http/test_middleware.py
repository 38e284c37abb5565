"""`Idempotency-Key` in front of plain ASGI applications: what runs, what is given again, what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import ConfigError, StoreUnavailable, TooLarge
from mainspring.idempotency import InMemoryStore, NotDone, Resolved, Unresolved
from mainspring.idempotency.entries import COLLECTION
from mainspring.idempotency.http.held_answer import AsgiApp, Receive, Scope, Send
from mainspring.idempotency.http.middleware import IdempotencyMiddleware, KeyedRequest, authorization, request_key
from mainspring.idempotency.http.quota import Quota
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.stores.memory import MemoryStore
from tests.idempotency.stalling_store import Stalling
from tests.support.asgi_requests import Client

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class Shop:
    """Counts what it does, and answers as told."""

    def __init__(self) -> None:
        self.runs = 0
        self.status = 201
        self.body = b'{"order":1}\x00\xff'
        self.chunks = 1
        self.headers = [
            (b"Content-Type", b"application/octet-stream"),
            (b"location", b"/orders/1"),
            (b"x-twice", b"a"),
            (b"x-twice", b"b"),
            (b"set-cookie", b"session=1"),
            (b"date", b"yesterday"),
            (b"connection", b"close"),
        ]
        self.failure: Exception | None = None
        self.fails_late = False
        self.gate: asyncio.Event | None = None
        self.got = b""
        self.extensions: set[str] = set()
        self.entered = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.runs += 1
        self.got = (await receive())["body"]
        self.extensions = set(scope["extensions"])
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None and not self.fails_late:
            raise self.failure
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        if self.failure is not None:
            raise self.failure
        for _ in range(self.chunks - 1):
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture
def shop() -> Shop:
    return Shop()


def guarded(app: AsgiApp, **options: Any) -> Client:
    return Client(IdempotencyMiddleware(app, store=InMemoryStore(), **options))


async def test_a_repeat_gets_the_same_answer_byte_for_byte_and_runs_nothing(shop: Shop) -> None:
    call = guarded(shop)
    first = await call(key=KEY, body=b'{"n": 1}', chunks=3)
    again = await call(key=KEY, body=b'{"n": 1}')
    assert shop.runs == 1
    assert shop.got == b'{"n": 1}'
    assert shop.extensions == set(), "no way of answering that could not be held back"
    assert (first.status, first.headers, first.body, first.was_replayed) == (201, shop.headers, shop.body, False)
    assert (again.status, again.body) == (201, shop.body)
    kept = [header for header in shop.headers if header[0] not in (b"set-cookie", b"date", b"connection")]
    assert again.headers == [*kept, (b"idempotent-replayed", b"true")]


async def test_a_request_whose_claim_was_applied_late_runs_when_it_is_repeated(shop: Shop) -> None:
    store = Stalling()
    call = Client(IdempotencyMiddleware(shop, store=store))
    store.is_stalled = True
    refused = await call(key=KEY)
    assert (refused.status, refused.header(b"retry-after")) == (503, b"1")
    store.now += 3_600_000  # every lease has passed
    store.go_on()
    assert (await call(key=KEY)).status == 201
    assert (await call(key=KEY)).was_replayed
    assert shop.runs == 1


async def test_cookies_are_given_again_only_where_asked_for(shop: Shop) -> None:
    call = guarded(shop, keep_cookies=True)
    await call(key=KEY)
    assert (await call(key=KEY)).header(b"set-cookie") == b"session=1"


async def test_a_request_without_a_key_passes_untouched(shop: Shop) -> None:
    call = guarded(shop)
    for _ in range(2):
        assert (await call()).headers == shop.headers
    assert shop.runs == 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_other_methods_pass_untouched(shop: Shop, method: str) -> None:
    call = guarded(shop)
    for _ in range(2):
        assert (await call(key=KEY, method=method)).status == 201
    assert shop.runs == 2


async def test_a_missing_key_is_refused_where_one_is_required(shop: Shop) -> None:
    call = guarded(shop, required=lambda method, route: method == "POST" and route.startswith("/payments"))
    refused = await call("/payments")
    assert (refused.status, refused.code) == (400, "invalid_input")
    assert b"Expected an Idempotency-Key header, got none" in refused.body
    assert shop.runs == 0
    assert (await call("/orders")).status == 201
    assert (await call("/payments", key=KEY)).status == 201


@pytest.mark.parametrize("key", [b"", b" ", b"a b", b"x" * 256, b"\xc3\xa9", b"a\x00"])
async def test_a_bad_key_is_refused(shop: Shop, key: bytes) -> None:
    refused = await guarded(shop)(key=key)
    assert (refused.status, refused.code, shop.runs) == (400, "invalid_input", 0)


async def test_the_longest_key_is_accepted_and_two_keys_are_refused(shop: Shop) -> None:
    call = guarded(shop)
    assert (await call(key=b"~" * 255)).status == 201
    assert (await call(key=KEY, headers={"Idempotency-Key": "other"})).status == 400


async def test_a_key_is_the_same_in_quotes_and_without(shop: Shop) -> None:
    call = guarded(shop)
    assert not (await call(key=b'"k-1"')).was_replayed
    for key in (b"k-1", b'"k-1"'):
        assert (await call(key=key)).was_replayed
    assert not (await call(key=rb'"a\"b\\c"')).was_replayed
    assert (await call(key=rb'a"b\c')).was_replayed
    for key in (b'""', b'"a b"'):
        assert (await call(key=key)).status == 400
    assert shop.runs == 2


@pytest.mark.parametrize("change", [{"body": b'{"n":2}'}, {"body": b'{"n": 1}'}, {"query": b"page=2"}])
async def test_the_same_key_with_other_bytes_is_refused(shop: Shop, change: dict[str, bytes]) -> None:
    call = guarded(shop)
    await call(key=KEY, body=b'{"n":1}')
    refused = await call(**{"key": KEY, "body": b'{"n":1}', **change})  # type: ignore[arg-type]
    assert (refused.status, refused.code) == (422, "key_reuse")
    assert shop.runs == 1


async def test_a_repeat_during_the_work_is_refused_and_told_when_to_come_again(shop: Shop) -> None:
    shop.gate = asyncio.Event()
    call = guarded(shop)
    first = asyncio.create_task(call(key=KEY))
    await shop.entered.wait()
    refused = await call(key=KEY)
    assert (refused.status, refused.code) == (409, "in_progress")
    assert int(refused.header(b"retry-after") or b"0") >= 1
    other = await call(key=KEY, body=b"else")
    assert (other.status, other.code) == (422, "key_reuse")
    shop.gate.set()
    assert (await first).status == 201
    assert (await call(key=KEY)).was_replayed
    assert shop.runs == 1


async def test_a_repeat_at_another_instance_is_refused_during_the_work_and_replayed_after_it(shop: Shop) -> None:
    shop.gate = asyncio.Event()
    store = InMemoryStore()
    one, other = (Client(IdempotencyMiddleware(shop, store=store)) for _ in range(2))
    first = asyncio.create_task(one(key=KEY))
    await shop.entered.wait()
    assert (await other(key=KEY)).code == "in_progress"
    assert (await other(key=KEY, body=b"else")).code == "key_reuse"
    shop.gate.set()
    await first
    assert (await other(key=KEY)).was_replayed
    assert shop.runs == 1


async def test_one_key_in_another_scope_is_another_key(shop: Shop) -> None:
    call = guarded(shop)
    for options in (
        {"headers": {"Authorization": "Bearer ann"}},
        {"headers": {"Authorization": "Bearer bob"}},
        {"path": "/refunds"},
        {"method": "PATCH"},
        {},
    ):
        assert not (await call(**{"key": KEY, **options})).was_replayed  # type: ignore[arg-type]
    assert shop.runs == 5
    assert (await call(key=KEY, headers={"Authorization": "Bearer ann"})).was_replayed


async def test_the_principal_and_the_route_can_be_told(shop: Shop) -> None:
    call = guarded(
        shop,
        principal=lambda scope: dict(scope["headers"])[b"x-tenant"].decode(),
        route=lambda scope: scope["path"].split("/")[1],
    )
    assert (await call("/orders/1", key=KEY, headers={"x-tenant": "a", "authorization": "old"})).status == 201
    assert (await call("/orders/2", key=KEY, headers={"x-tenant": "a", "authorization": "new"})).was_replayed
    assert not (await call("/orders/1", key=KEY, headers={"x-tenant": "b"})).was_replayed


async def test_where_an_application_is_mounted_is_part_of_its_route_once(shop: Shop) -> None:
    """ASGI: `path` includes `root_path`."""
    app = IdempotencyMiddleware(shop, store=InMemoryStore())

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/shop"}, receive, send)

    await Client(mounted)("/shop/orders", key=KEY)
    assert await app.processor.forget(request_key(principal="", method="POST", route="/shop/orders", key=KEY))


async def test_methods_may_be_written_in_either_case(shop: Shop) -> None:
    call = guarded(shop, methods=["post"])
    await call(key=KEY)
    assert (await call(key=KEY)).was_replayed


@pytest.mark.parametrize("methods", ["POST", ()])
async def test_what_names_no_methods_is_refused_at_once(shop: Shop, methods: Any) -> None:
    with pytest.raises(ConfigError, match="Expected the names of methods"):
        guarded(shop, methods=methods)


@pytest.mark.parametrize("option", ["principal", "route"])
async def test_a_principal_or_route_that_is_not_text_is_an_error_that_names_it(shop: Shop, option: str) -> None:
    with pytest.raises(TypeError, match=f"Expected {option}= to give text, got int"):
        await guarded(shop, **{option: lambda scope: 7})(key=KEY)
    assert shop.runs == 0


async def test_a_header_that_is_not_bytes_is_an_error_of_the_application(shop: Shop) -> None:
    shop.headers = [("x-own", "text")]  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Expected a header of bytes"):
        await guarded(shop)(key=KEY)


async def test_a_repeat_is_answered_under_its_own_request_id(shop: Shop) -> None:
    shop.headers = [(b"x-own", b"1"), (b"X-Request-ID", b"r-1"), (b"x-other", b"2")]
    call = guarded(shop)
    assert (await call(key=KEY, headers={"x-request-id": "r-1"})).headers == shop.headers
    again = await call(key=KEY, headers={"x-request-id": "r-2"})
    replayed = (b"idempotent-replayed", b"true")
    assert again.headers == [(b"x-own", b"1"), (b"X-Request-ID", b"r-2"), (b"x-other", b"2"), replayed]
    for without in ({}, {"x-request-id": "a b"}):
        assert (await call(key=KEY, headers=without)).headers == [(b"x-own", b"1"), (b"x-other", b"2"), replayed]


def test_credentials_are_never_part_of_a_key() -> None:
    scope = {"headers": [(b"authorization", b"Bearer secret")]}
    assert "secret" not in authorization(scope)
    assert authorization({"headers": []}) == ""
    assert request_key(principal="a", method="b", route="c", key="d") != request_key(
        principal="a", method="b", route="", key="cd"
    )


@pytest.mark.parametrize(
    ("status", "runs"), [(200, 1), (404, 1), (400, 2), (422, 2), (401, 2), (403, 2), (429, 2), (500, 2), (503, 2)]
)
async def test_answers_that_say_not_done_are_not_kept(shop: Shop, status: int, runs: int) -> None:
    shop.status = status
    call = guarded(shop)
    assert [(await call(key=KEY)).status for _ in range(2)] == [status, status]
    assert shop.runs == runs


async def test_server_errors_are_kept_where_asked_for_but_never_a_refusal(shop: Shop) -> None:
    call = guarded(shop, keep=lambda status: True)
    shop.status = 502
    await call(key=KEY)
    assert (await call(key=KEY)).was_replayed
    shop.status = 429
    for _ in range(2):
        assert not (await call(key="other")).was_replayed


async def test_an_application_that_fails_before_it_answers_may_be_tried_again(shop: Shop) -> None:
    call = guarded(shop)
    for failure in (ValueError("no"), TimeoutError(), StoreUnavailable()):
        shop.failure = failure
        with pytest.raises(type(failure)):
            await call(key=KEY)
    shop.failure = None
    assert (await call(key=KEY)).status == 201


async def test_after_an_exception_the_outcome_is_unknown_where_that_is_asked_for(shop: Shop) -> None:
    call = guarded(shop, on_exception="unknown")
    shop.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await call(key=KEY)
    assert (await call(key=KEY)).code == "unknown_outcome"
    shop.failure, shop.status = None, 500  # by which frameworks tell of an exception
    assert [(await call(key="500")).status for _ in range(2)] == [500, 409]
    shop.status = 503
    assert [(await call(key="503")).status for _ in range(2)] == [503, 503]
    assert shop.runs == 4
    with pytest.raises(ConfigError, match="free or unknown"):
        guarded(shop, on_exception="retry")


async def test_resolve_finds_out_about_a_request_whose_outcome_is_unknown(shop: Shop) -> None:
    asked: list[KeyedRequest] = []

    async def resolve(request: KeyedRequest, unresolved: Unresolved) -> Resolved[object] | NotDone | None:
        asked.append(request)
        answers: dict[str, Resolved[object] | NotDone] = {"done": Resolved({"order": 17}), "not": NotDone()}
        return answers.get(request.key)

    call = guarded(shop, resolve=resolve, on_exception="unknown")
    for key in ("done", "not", "lost"):
        shop.failure = ValueError("no")
        with pytest.raises(ValueError, match="no"):
            await call(key=key, body=b"[]", query=b"a=1")
        shop.failure = None
    again = await call(key="done", body=b"[]", query=b"a=1")
    assert (again.status, again.body, again.was_replayed) == (200, b'{"order":17}', True)
    assert (await call(key="not", body=b"[]", query=b"a=1")).status == 201
    assert (await call(key="lost", body=b"[]", query=b"a=1")).code == "unknown_outcome"
    assert [(one.method, one.route, one.key, one.query, one.body) for one in asked] == [
        ("POST", "/orders", key, b"a=1", b"[]") for key in ("done", "not", "lost")
    ]
    assert asked[0].headers["idempotency-key"] == "done"


async def test_a_refusal_does_not_tell_where_the_store_is(shop: Shop) -> None:
    class Away(InMemoryStore):
        async def look(self, address: str, *, now: int) -> None:
            raise StoreUnavailable("Expected to use redis://secret-host:6379, got: refused")

    refused = await Client(IdempotencyMiddleware(shop, store=Away()))(key=KEY)
    assert (refused.status, refused.code, shop.runs) == (503, "store_unavailable", 0)
    assert b"secret-host" not in refused.body


async def test_an_application_that_fails_while_it_answers_leaves_the_outcome_unknown(shop: Shop) -> None:
    call = guarded(shop)
    shop.failure, shop.fails_late = ValueError("half way"), True
    with pytest.raises(ValueError, match="half way"):
        await call(key=KEY)
    refused = await call(key=KEY)
    assert (refused.status, refused.code, shop.runs) == (409, "unknown_outcome", 1)
    assert refused.header(b"retry-after") is None


async def test_a_request_that_is_cancelled_leaves_the_outcome_unknown_until_it_is_settled(shop: Shop) -> None:
    shop.gate = asyncio.Event()
    app = IdempotencyMiddleware(shop, store=InMemoryStore())
    call = Client(app)
    task = asyncio.create_task(call(key=KEY))
    await shop.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    refused = await call(key=KEY)
    assert (refused.status, refused.code, shop.runs) == (409, "unknown_outcome", 1)
    name = request_key(principal="", method="POST", route="/orders", key=KEY)
    assert name.encode() in refused.body
    shop.gate = None
    assert await app.processor.forget(name)
    assert (await call(key=KEY)).status == 201


async def test_work_goes_on_when_the_client_goes_away(shop: Shop) -> None:
    async def watchful(scope: Scope, receive: Receive, send: Send) -> None:
        """Gives up when its client does, as streaming answers do."""
        await receive()
        gone: asyncio.Task[Any] = asyncio.create_task(receive())  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        if gone.done():
            raise ConnectionError
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        assert (await gone)["type"] == "http.disconnect"

    call = guarded(watchful)
    await call(key=KEY, gone=True)
    assert (await call(key=KEY)).body == b"done"


async def test_a_client_that_goes_away_before_its_request_is_whole_claims_nothing(shop: Shop) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        sent.append(1)
        return {"type": "http.request", "more_body": True} if len(sent) == 1 else {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError

    store = InMemoryStore()
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
    await IdempotencyMiddleware(shop, store=store)(scope, receive, send)
    assert (shop.runs, len(store)) == (0, 0)


async def test_an_answer_in_parts_is_given_again_whole(shop: Shop) -> None:
    shop.chunks = 5
    call = guarded(shop)
    first, again = [await call(key=KEY) for _ in range(2)]
    assert first.body == again.body == shop.body * 5


async def test_an_answer_that_is_too_large_is_passed_on_and_its_work_never_runs_again(shop: Shop) -> None:
    shop.chunks, shop.body = 10, b"x" * 100
    call = guarded(shop, max_response_bytes=350)
    first = await call(key=KEY)
    assert (first.body, first.messages) == (b"x" * 1000, 11)
    again = await call(key=KEY)
    assert (again.status, again.code, shop.runs) == (409, "conflict", 1)
    assert b"too large to keep" in again.body


async def test_events_are_streamed_at_once(shop: Shop) -> None:
    shop.headers, shop.chunks = [(b"content-type", b"text/event-stream; charset=utf-8")], 3
    call = guarded(shop)
    assert (await call(key=KEY)).messages == 4
    assert (await call(key=KEY)).status == 409


async def test_a_request_that_is_too_large_to_compare_is_refused(shop: Shop) -> None:
    refused = await guarded(shop, max_request_bytes=10)(key=KEY, body=b"x" * 11)
    assert (refused.status, refused.code, shop.runs) == (413, "too_large", 0)


async def test_nothing_runs_without_a_claim(shop: Shop) -> None:
    store = InMemoryStore()

    async def down(*_: object, **__: object) -> None:
        raise StoreUnavailable

    store.claim = down  # type: ignore[method-assign]
    refused = await Client(IdempotencyMiddleware(shop, store=store))(key=KEY, headers={"x-request-id": "r-1"})
    assert (refused.status, refused.code, shop.runs) == (503, "store_unavailable", 0)
    assert refused.header(b"retry-after") == b"1"
    assert b'"requestId":"r-1"' in refused.body


@pytest.mark.parametrize("error", [StoreUnavailable, TooLarge])
async def test_the_caller_of_work_whose_outcome_cannot_be_recorded_gets_its_answer(
    shop: Shop, error: type[Exception]
) -> None:
    class Full(InMemoryStore):
        async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
            if b'"state":"done"' in value:
                raise error
            return await super().replace(address, value, expect=expect, now=now, expires_at=expires_at)

    call = Client(IdempotencyMiddleware(shop, store=Full(), lease_seconds=0.1))
    assert (await call(key=KEY)).body == shop.body
    again = await call(key=KEY)
    assert (again.status, again.code, shop.runs) == (409, "unknown_outcome", 1)


async def test_an_application_that_never_answers_is_an_error() -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    with pytest.raises(RuntimeError, match="Expected a complete answer"):
        await guarded(silent)(key=KEY)


async def test_what_is_not_http_passes_untouched(shop: Shop) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    await IdempotencyMiddleware(app, store=InMemoryStore())({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]


async def test_two_hundred_callers_of_one_key_run_it_once(shop: Shop) -> None:
    call = guarded(shop)
    answers = await asyncio.gather(*(call(key=KEY) for _ in range(200)))
    assert shop.runs == 1
    assert {answer.status for answer in answers} <= {201, 409}
    assert (await call(key=KEY)).was_replayed


async def test_answers_are_kept_up_to_a_quota_and_beyond_it_only_that_the_work_was_done() -> None:
    shop = Shop()
    shop.body = b"x" * 1000
    client = Client(IdempotencyMiddleware(shop, store=InMemoryStore(), max_kept_bytes=2500))
    for number in range(4):
        first = await client(key=f"key-{number}")
        assert (first.status, first.body) == (201, shop.body)
    repeats = [await client(key=f"key-{number}") for number in range(4)]
    assert [repeat.status for repeat in repeats] == [201, 201, 409, 409]
    assert shop.runs == 4


def test_the_quota_has_room_again_when_what_was_kept_has_expired() -> None:
    now = [0.0]
    quota = Quota(100, ttl_seconds=60, monotonic=lambda: now[0])
    quota.take(70)
    assert quota.room == 30
    now[0] = 30.0
    quota.take(30)
    assert quota.room == 0
    now[0] = 61.0
    assert quota.room == 70
    now[0] = 91.0
    assert quota.room == 100


async def test_an_answer_that_cannot_be_read_any_more_is_told_of_and_its_work_does_not_run_again() -> None:
    shop, memory = Shop(), MemoryStore(SystemClock())
    client = Client(IdempotencyMiddleware(shop, store=RecordsStore(memory)))
    await client(key=KEY)
    now = await memory.time()
    [kept] = await memory.scan_records(COLLECTION, now=now)
    line, _, _ = kept.value.partition(b"\n")
    spoiled = line + b"\n\xc1"
    await memory.put_record(COLLECTION, kept.key, spoiled, expect=kept.version, now=now, expires_at=kept.expires_at)
    again = await client(key=KEY)
    assert (again.status, again.code) == (409, "unknown_outcome")
    assert shop.runs == 1
