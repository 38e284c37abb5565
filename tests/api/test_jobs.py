"""The job routes at the HTTP edge; what the service does behind them is tested with it."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.api.app import build_app
from mainspring.api.asgi import AsgiApp
from tests.support.exchanges import Answer, call
from tests.support.service_doubles import Edge, keyed

TRIGGER = b'{"name":"report"}'


async def trigger(app: AsgiApp, key: str) -> Answer:
    return await call(app, "/v1/jobs/trigger", TRIGGER, headers={"idempotency-key": key})


async def test_the_start_of_a_preview_is_called_from_on_the_wire() -> None:
    edge = Edge()
    body = b'{"schedule":"0 9 * * *","from":"2027-01-02T03:04:05Z","count":3}'
    answer = await call(build_app(edge.api), "/v1/jobs/preview", body)
    assert answer.status == 200
    assert edge.jobs.previewed is not None
    assert (str(edge.jobs.previewed.from_), edge.jobs.previewed.count) == ("2027-01-02 03:04:05+00:00", 3)
    wrong = await call(build_app(edge.api), "/v1/jobs/preview", body.replace(b'"from"', b'"from_"'))
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/from_"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", '"a b"'),
        ("name", '"-a"'),
        ("route", '"jobs/x"'),
        ("method", '"TRACE"'),
        ("overlap", '"queue"'),
        ("catchup", '"some"'),
        ("dst", '{"onGap":"wait"}'),
        ("timeoutSeconds", "0"),
        ("maxRuns", "0"),
        ("startAt", '"2027-01-02T03:04:05"'),
        ("lastRun", "1"),
    ],
)
async def test_a_wrong_field_of_a_job_is_named(field: str, value: str) -> None:
    fields = {"name": '"report"', "schedule": '"@daily"', field: value}
    body = ",".join(f'"{name}":{text}' for name, text in fields.items())
    answer = await call(build_app(Edge().api), "/v1/jobs/create", f"{{{body}}}".encode())
    assert (answer.status, answer.code) == (400, "invalid_input")
    assert answer.json()["errors"][0]["pointer"].startswith(f"/{field}")


async def test_a_trigger_with_a_key_runs_once() -> None:
    edge = Edge()
    app = build_app(keyed(edge))
    first, again = await trigger(app, "k"), await trigger(app, "k")
    assert (first.status, again.status, edge.jobs.triggers) == (200, 200, 1)
    assert again.body == first.body
    await trigger(app, "other")
    assert edge.jobs.triggers == 2


async def test_a_trigger_whose_end_is_unknown_is_not_carried_out_again_under_its_key() -> None:
    edge = Edge()
    app = build_app(keyed(edge))
    edge.jobs.cut = asyncio.CancelledError()
    assert (await trigger(app, "k")).status != 200
    edge.jobs.cut = None
    assert (await trigger(app, "k")).code == "unknown_outcome"
    assert edge.jobs.triggers == 1
