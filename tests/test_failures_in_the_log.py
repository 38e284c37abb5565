"""What did not end well is in the log: every attempt, run, fetch and offer, with its ids and reason; no secret is."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Raw

from mainspring import telemetry
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.fetches.messages import CreateFetch, OutboundRequest
from mainspring.jobs.messages import CreateJob, TriggerJob
from mainspring.model import Delivery, RetryPolicy
from mainspring.telemetry import RequestIds
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import CreateTimer, TimerRef
from tests.servers.process import free_port
from tests.support.patience import until

CANARY = "canary-3f9a"
SECRETS = {"Authorization": f"Bearer {CANARY}-header", "X-Note": f"{CANARY}-note"}
HOOK = f"/hook?access_token={CANARY}-url"
ONCE = RetryPolicy(max_attempts=1)
TWICE = RetryPolicy(max_attempts=2, initial_interval_seconds=0.0, jitter=0.0)


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[Instance]:
    config = Config(store="memory://", data_dir=str(tmp_path), allow_loopback=True, drain_seconds=0.1)
    async with Instance(config) as running:
        yield running


@pytest.fixture
def plain() -> Iterator[io.StringIO]:
    """What a program gets that has set up logging in the plainest way."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("mainspring")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield written
    logger.setLevel(level)
    logger.removeHandler(handler)


async def line(plain: io.StringIO, words: str) -> str:
    async def look() -> str | None:
        return next((found for found in plain.getvalue().splitlines() if words in found), None)

    return await until(look, seconds=10, what=f"a line with {words!r}")


def timer(url: str, **fields: object) -> CreateTimer:
    asked: dict[str, object] = {
        "timer_id": "tea",
        "delay_seconds": 0.0,
        "callback_url": url,
        "headers": SECRETS,
        "payload": Raw(f'"{CANARY}-payload"'.encode()),
        "retry_policy": ONCE,
        **fields,
    }
    return CreateTimer(**asked)  # type: ignore[arg-type]


async def test_an_attempt_that_failed_and_the_last_one_have_a_line_each(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    target.script(HOOK, Answer(status=503, body=f"{CANARY}-answer".encode()))
    view = await instance.timers.create(timer(target.url + HOOK, retry_policy=TWICE))
    last = await line(plain, "a timer was parked after its last attempt")
    first = await line(plain, "an attempt failed")
    for part in ("WARNING", "namespace=default timer_id=tea", f"delivery_id={view.delivery_id}", "outcome=failed"):
        assert part in first
        assert part in last
    assert "attempt=1 outcome=failed status=503 next=retry next_at=" in first
    assert "attempt=2 outcome=failed status=503 next=parked" in last
    assert f"destination=127.0.0.1:{target.port} reason=The receiver answered 503." in last
    assert "No attempt is left after 2." in last
    assert CANARY not in plain.getvalue()


async def test_an_unknown_outcome_has_a_line(instance: Instance, target: TargetServer, plain: io.StringIO) -> None:
    target.script(HOOK, Answer(behaviour="reset"))
    await instance.timers.create(timer(target.url + HOOK, retry_policy=TWICE))
    assert "outcome=unknown" in await line(plain, "the outcome of an attempt is unknown")
    await instance.timers.create(timer(target.url + HOOK, timer_id="once", delivery=Delivery.AT_MOST_ONCE))
    assert "outcome=unknown next=parked" in await line(plain, "timer_id=once")
    assert CANARY not in plain.getvalue()


async def test_a_timer_of_a_url_that_is_gone_has_a_line(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    target.script(HOOK, Answer(status=410))
    await instance.timers.create(timer(target.url + HOOK))
    await line(plain, "timer_id=tea")
    await instance.timers.create(timer(target.url + HOOK, timer_id="next"))
    found = await line(plain, "timer_id=next")
    assert "a timer was put aside" in found
    assert "410 Gone" in found
    assert CANARY not in plain.getvalue()


async def test_what_succeeds_has_no_line(instance: Instance, target: TargetServer, plain: io.StringIO) -> None:
    await instance.timers.create(timer(target.url + HOOK))
    await target.wait_for(1)
    await instance.timers.create(timer(f"{target.url}/status/500", timer_id="other"))
    await line(plain, "timer_id=other")
    assert "timer_id=tea" not in plain.getvalue()


async def test_attempts_and_the_end_of_a_run_have_their_lines(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    target.script(HOOK, Answer(status=500), Answer(status=500), Answer(behaviour="reset"))
    url = target.url + HOOK
    await instance.jobs.create(
        CreateJob(name="report", schedule="0 0 1 1 *", url=url, headers=SECRETS, retry_policy=TWICE)
    )
    run = await instance.jobs.trigger(TriggerJob(name="report"))
    last = await line(plain, "WARNING a run failed")
    first = await line(plain, "an attempt of a run failed")
    ids = f"run={run.launch_id} delivery_id={run.delivery_id} correlation_id={run.delivery_id[-32:]}"
    assert f"{ids} attempt=1 outcome=failed status=500 next=retry" in first
    assert f"{ids} attempt=2 outcome=failed status=500 next=done" in last
    assert f"destination=127.0.0.1:{target.port} reason=The receiver answered 500." in last
    await instance.jobs.trigger(TriggerJob(name="report"))
    await line(plain, "the outcome of an attempt of a run is unknown")
    assert CANARY not in plain.getvalue()


async def test_a_fetch_that_failed_or_is_unknown_and_an_offer_that_failed_have_their_lines(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    closed = f"http://127.0.0.1:{free_port()}/?key={CANARY}-url"
    await instance.fetches.create(
        CreateFetch(
            req_id="payment-1",
            request=OutboundRequest(url=closed, headers=SECRETS, body=f"{CANARY}-body", method="POST"),
            result_url=f"{target.url}/status/503?key={CANARY}-origin",
            context=Raw(f'"{CANARY}-context"'.encode()),
        )
    )
    failed = await line(plain, "a fetch failed")
    assert "req_id=payment-1 outcome=failed kind=network" in failed
    assert "Nothing was sent." in failed
    offer = await line(plain, "an offer of a result failed")
    assert "req_id=payment-1 attempt=1 status=503 next=retry" in offer
    assert f"destination=127.0.0.1:{target.port}" in offer
    await instance.fetches.create(
        CreateFetch(req_id="payment-2", request=OutboundRequest(url=f"{target.url}/reset", method="POST"))
    )
    assert "req_id=payment-2 outcome=unknown" in await line(plain, "the outcome of a fetch is unknown")
    assert CANARY not in plain.getvalue()


@contextmanager
def correlated(correlation_id: str) -> Iterator[None]:
    """As if this was asked for by a request with this id."""
    before = telemetry.served_request.set(RequestIds("r-1", correlation_id))
    yield
    telemetry.served_request.reset(before)


async def test_the_correlation_id_of_a_request_goes_with_its_timer_to_the_receiver_and_into_the_log(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    with correlated("order-42"):
        view = await instance.timers.create(timer(f"{target.url}/status/500"))
    assert view.headers["x-correlation-id"] == "order-42"
    await target.wait_for(1)
    assert target.requests[0].headers["x-correlation-id"] == "order-42"
    assert "correlation_id=order-42" in await line(plain, "timer_id=tea")
    own = timer(f"{target.url}/status/500", timer_id="own", headers={"X-Correlation-Id": "mine"})
    with correlated("order-42"):
        assert (await instance.timers.create(own)).headers == {"X-Correlation-Id": "mine"}
    assert "correlation_id=mine" in await line(plain, "timer_id=own")


async def test_a_timer_with_as_many_headers_as_it_may_have_gets_no_more(instance: Instance) -> None:
    many = {f"X-{n}": "v" for n in range(50)}
    with correlated("order-42"):
        await instance.timers.create(timer("http://127.0.0.1:9/", delay_seconds=60.0, headers=many))
    assert (await instance.timers.get(TimerRef(timer_id="tea"))).headers == many


async def test_the_correlation_id_of_a_request_goes_with_its_fetch_to_the_origin_and_into_the_log(
    instance: Instance, target: TargetServer, plain: io.StringIO
) -> None:
    request = OutboundRequest(url=f"{target.url}/reset", method="POST")
    with correlated("order-42"):
        await instance.fetches.create(CreateFetch(req_id="p", request=request, result_url=f"{target.url}/origin"))
    await target.wait_for(2)
    assert "req_id=p correlation_id=order-42" in await line(plain, "the outcome of a fetch is unknown")
    sent = {asked.path: asked.headers.get("x-correlation-id") for asked in target.requests}
    assert sent == {"/reset": None, "/origin": "order-42"}
