"""When a request is sent again, and when it must not be: counted at a real server that answers badly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from mainspring.client import AsyncClient
from mainspring.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MainspringError,
    NetworkError,
    NotFound,
    RateLimited,
    ServerError,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from mainspring.model import Delivery, State
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import DeletedView, TimerView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = TimerView(
    namespace="default",
    timer_id="t",
    execute_at=NOW,
    callback_url="http://127.0.0.1/",
    payload_json=msgspec.Raw(b"null"),
    headers={},
    retry_policy=None,
    callback_timeout_seconds=30.0,
    delivery=Delivery.AT_LEAST_ONCE,
    labels={},
    state=State.SCHEDULED,
    next_attempt_at=None,
    attempts=0,
    generation=1,
    delivery_id="m",
    created_at=NOW,
    updated_at=NOW,
    last_outcome=None,
)
GOOD = Answer(body=msgspec.json.encode(VIEW))
LOST = Answer(behaviour="close")


def problem(status: int, code: str, *, retryable: bool = False, wait: str = "") -> Answer:
    body = {"code": code, "detail": f"told {code}", "retryable": retryable, "requestId": "r-1", "status": status}
    headers = (("content-type", "application/problem+json"), *((("retry-after", wait),) if wait else ()))
    return Answer(status=status, body=msgspec.json.encode(body), headers=headers)


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer() as opened:
        yield opened


@pytest.fixture
async def client(target: TargetServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target.url, "token", timeout=5) as opened:
        yield opened


async def test_a_read_is_repeated_until_it_is_answered(target: TargetServer, client: AsyncClient) -> None:
    target.script("/v1/timers/get", LOST, problem(503, "store_unavailable", retryable=True), GOOD)
    assert (await client.timers.get("t")).timer_id == "t"
    assert len(target.requests) == 3


async def test_after_three_retries_the_error_is_passed_on(target: TargetServer, client: AsyncClient) -> None:
    target.script("/v1/timers/get", LOST)
    with pytest.raises(NetworkError) as caught:
        await client.timers.get("t")
    assert len(target.requests) == 4
    assert not caught.value.outcome_unknown, "a read has no effect that could be unknown"


async def test_a_far_create_is_repeated_when_its_answer_is_lost(target: TargetServer, client: AsyncClient) -> None:
    target.script("/v1/timers/create", LOST, GOOD)
    await client.timers.create("t", callback_url="http://127.0.0.1/", delay_seconds=86_400)
    assert [request.body for request in target.requests] == [target.requests[0].body] * 2


Write = Callable[[AsyncClient], Awaitable[object]]
ONCE: dict[str, tuple[str, Write]] = {
    "a create that is due soon": (
        "create",
        lambda client: client.timers.create("t", callback_url="http://127.0.0.1/", delay_seconds=1),
    ),
    "a create for an instant that is near": (
        "create",
        lambda client: client.timers.create(
            "t", callback_url="http://127.0.0.1/", execute_at=datetime.now(UTC) + timedelta(seconds=30)
        ),
    ),
    "an update of one generation": ("update", lambda client: client.timers.update("t", if_generation=1, payload=1)),
    "an update to soon": ("update", lambda client: client.timers.update("t", delay_seconds=1)),
    "run-now": ("run-now", lambda client: client.timers.run_now("t")),
    "park": ("park", lambda client: client.timers.park("t")),
    "resume": ("resume", lambda client: client.timers.resume("t")),
    "a bulk verb": ("bulk-delete", lambda client: client.timers.bulk_delete(id_prefix="t")),
}


@pytest.mark.parametrize("what", ONCE)
@pytest.mark.parametrize("bad", [LOST, problem(503, "store_unavailable", retryable=True), Answer(status=502)])
async def test_what_might_do_more_is_not_repeated_when_its_outcome_is_unknown(
    target: TargetServer, client: AsyncClient, what: str, bad: Answer
) -> None:
    verb, write = ONCE[what]
    target.script(f"/v1/timers/{verb}", bad, GOOD)
    with pytest.raises((NetworkError, Unavailable)) as caught:
        await write(client)
    assert caught.value.outcome_unknown
    assert len(target.requests) == 1


@pytest.mark.parametrize("refusal", [problem(429, "rate_limited", retryable=True), problem(503, "unavailable")])
async def test_a_write_is_repeated_when_the_server_says_that_it_did_nothing(
    target: TargetServer, client: AsyncClient, refusal: Answer
) -> None:
    target.script("/v1/timers/run-now", refusal, GOOD)
    await client.timers.run_now("t")
    assert len(target.requests) == 2


async def test_a_delete_that_finds_nothing_after_a_lost_answer_says_so(
    target: TargetServer, client: AsyncClient
) -> None:
    target.script("/v1/timers/delete", LOST, problem(404, "not_found"))
    with pytest.raises(NotFound) as caught:
        await client.timers.delete("t")
    assert caught.value.outcome_unknown
    assert "earlier attempt" in caught.value.__notes__[0]
    target.script("/v1/timers/delete", LOST, Answer(body=msgspec.json.encode(DeletedView(timer=VIEW))))
    assert (await client.timers.delete("t")).timer.timer_id == "t"


async def test_retry_after_is_obeyed_and_too_long_a_wait_is_not_waited(
    target: TargetServer, client: AsyncClient
) -> None:
    target.script("/v1/timers/get", problem(429, "rate_limited", wait="1"), GOOD)
    await client.timers.get("t")
    assert target.requests[1].arrived_at - target.requests[0].arrived_at >= 0.99
    target.script("/v1/timers/get", problem(429, "rate_limited", wait="3600"), GOOD)
    with pytest.raises(RateLimited):
        await client.timers.get("t")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(400, "invalid_input"), InvalidInput),
        (problem(401, "unauthenticated"), Unauthenticated),
        (problem(403, "forbidden"), Forbidden),
        (problem(404, "not_found"), NotFound),
        (problem(409, "conflict"), Conflict),
        (problem(413, "too_large"), TooLarge),
        (problem(429, "rate_limited"), RateLimited),
        (problem(500, "internal"), ServerError),
        (problem(503, "unavailable"), Unavailable),
        (problem(503, "store_unavailable"), StoreUnavailable),
        (problem(418, "something_new"), InvalidInput),
        (Answer(status=401, body=b"no"), Unauthenticated),
        (Answer(status=504, body=b"<html>"), Unavailable),
        (Answer(status=500, body=b"{}"), ServerError),
        (Answer(status=302, headers=(("location", "/"),)), NetworkError),
        (Answer(body=b"not json"), NetworkError),
        (Answer(body=b'{"other":1}'), NetworkError),
        (Answer(behaviour="garbage"), NetworkError),
    ],
)
async def test_every_answer_becomes_its_typed_error(
    target: TargetServer, answer: Answer, kind: type[MainspringError]
) -> None:
    target.script("/v1/timers/get", answer)
    async with AsyncClient(target.url, "token", retries=0) as client:
        with pytest.raises(kind) as caught:
            await client.timers.get("t")
    assert type(caught.value) is kind
    assert len(target.requests) == 1
    assert caught.value.request_id == ("r-1" if b"requestId" in answer.body else "")


async def test_the_timeout_counts_for_one_try(target: TargetServer) -> None:
    target.script("/v1/timers/run-now", Answer(behaviour="hang"))
    async with AsyncClient(target.url, "token", timeout=0.1) as client:
        with pytest.raises(NetworkError) as caught:
            await client.timers.run_now("t")
    assert caught.value.outcome_unknown


async def test_nothing_listening_is_a_network_error_without_any_effect() -> None:
    async with TargetServer() as closed:
        url = closed.url
    async with AsyncClient(url, "token", retries=1) as client:
        with pytest.raises(NetworkError) as caught:
            await client.timers.run_now("t")
    assert not caught.value.outcome_unknown
