"""What arrives at the receiver of a run: token, signature, ids, instants and body. Over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mainspring.cluster.instance import Instance
from mainspring.config import Config, load_config
from mainspring.delivery.signing import verify
from mainspring.errors import ConfigError, InvalidInput
from mainspring.jobs.messages import CreateJob, JobRef, ListRuns, RunView, TriggerJob
from mainspring.namespaces.messages import NamespaceRef
from mainspring.testing.target import Answer, Request, TargetServer

TOKEN = "a-token-for-the-service"


@asynccontextmanager
async def running(tmp_path: Path, target: TargetServer, **settings: Any) -> AsyncIterator[Instance]:
    base = {"job_base_url": f"{target.url}/api/", "job_token": TOKEN}
    async with Instance(
        Config(allow_loopback=True, store="memory://", data_dir=str(tmp_path), **{**base, **settings})
    ) as instance:
        yield instance


async def run(instance: Instance, target: TargetServer, **fields: Any) -> Request:
    """Make a job, trigger it, and answer what arrived."""
    arrived = len(target.requests)
    await instance.jobs.create(CreateJob(**{"name": "report", "schedule": "0 9 * * *", **fields}))
    await instance.jobs.trigger(TriggerJob(name="report"))
    await target.wait_for(arrived + 1)
    await instance.jobs.delete(JobRef(name="report"))
    return target.requests[arrived]


async def test_a_route_is_called_with_token_signature_ids_and_instants(tmp_path: Path, target: TargetServer) -> None:
    async with running(tmp_path, target) as instance:
        got = await run(instance, target)
        assert (got.method, got.path) == ("POST", "/api/jobs/trigger/report")
        assert got.headers["authorization"] == f"Bearer {TOKEN}"
        assert got.headers["webhook-id"] == got.headers["idempotency-key"]
        assert got.headers["mainspring-job"] == "report"
        assert (got.headers["mainspring-attempt"], got.headers["mainspring-max-attempts"]) == ("1", "3")
        assert len(got.headers["mainspring-next-at"].split(",")) == 5
        body = json.loads(got.body)
        assert body["job"] == "report"
        assert (body["kind"], body["attempt"], body["previousAt"], len(body["nextAt"])) == ("manual", 1, None, 5)
        assert body["correlationId"] == got.headers["x-correlation-id"]
        assert got.headers["traceparent"].split("-")[1] == got.headers["x-correlation-id"]
        secret = (await instance.namespaces.get(NamespaceRef(name="default"))).secret
        verify([secret], got.headers, got.body, now=instance.clock.now_ms() // 1000)


async def test_the_token_goes_to_no_other_url_and_not_beside_one_of_the_jobs_own(
    tmp_path: Path, target: TargetServer
) -> None:
    async with running(tmp_path, target) as instance:
        got = await run(instance, target, url=f"{target.url}/elsewhere")
        assert "authorization" not in got.headers
        got = await run(instance, target, route="/own", headers={"Authorization": "Basic abc"})
        assert (got.path, got.headers["authorization"]) == ("/api/own", "Basic abc")


async def test_a_route_does_not_lead_out_of_the_base_url(tmp_path: Path, target: TargetServer) -> None:
    async with running(tmp_path, target) as instance:
        for route in ("//other", "/../other", "/a/%2e%2E/../b", "/.."):
            with pytest.raises(InvalidInput, match="below job_base_url"):
                await instance.jobs.create(CreateJob(name="report", schedule="0 9 * * *", route=route))
        assert (await run(instance, target, route="/a..b?c=/../")).path == "/api/a..b?c=/../"


@pytest.mark.parametrize("settings", [{"job_token": ""}, {"job_base_url": "", "job_token": ""}])
async def test_a_route_needs_a_base_url_and_a_token(
    tmp_path: Path, target: TargetServer, settings: dict[str, str]
) -> None:
    async with running(tmp_path, target, **settings) as instance:
        with pytest.raises(InvalidInput, match=r"Expected .*(job_base_url|job_token)"):
            await instance.jobs.create(CreateJob(name="report", schedule="0 9 * * *", route="/x"))


@pytest.mark.parametrize(
    ("fields", "content_type", "body"),
    [
        ({"body": Raw(b'{"a": 1}')}, "application/json", b'{"a": 1}'),
        (
            {"body": Raw(b'"a=1&b=2"'), "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
            "app",
            b"a=1&b=2",
        ),
        ({"method": "GET"}, None, b""),
        ({"method": "DELETE"}, None, b""),
        ({"method": "PUT", "body": Raw(b"[1]")}, "application/json", b"[1]"),
    ],
)
async def test_a_job_says_what_is_sent(
    tmp_path: Path, target: TargetServer, fields: dict[str, Any], content_type: str | None, body: bytes
) -> None:
    async with running(tmp_path, target) as instance:
        got = await run(instance, target, url=target.url + "/x", **fields)
        assert got.method == fields.get("method", "POST")
        assert got.body == body
        assert (got.headers.get("content-type") or "").startswith(content_type or "")
        assert ("content-type" in got.headers) == (content_type is not None)


async def test_an_answer_is_kept_with_its_status_and_duration(tmp_path: Path, target: TargetServer) -> None:
    target.script("/x", Answer(status=404, body=b"no such report"))
    async with running(tmp_path, target) as instance:
        await instance.jobs.create(CreateJob(name="report", schedule="0 9 * * *", url=target.url + "/x"))
        await instance.jobs.trigger(TriggerJob(name="report"))
        await target.wait_for(1)
        run = await newest_run(instance, "report")
        assert (run.state, run.status, run.attempts, run.answer_head) == ("failed", 404, 1, "no such report")
        assert run.duration_ms is not None
        assert (run.late_ms or 0) < 1000


async def newest_run(instance: Instance, name: str) -> RunView:
    """The newest run, once it is over."""
    async with asyncio.timeout(10):
        while True:
            [run, *_] = (await instance.jobs.runs(ListRuns(name=name))).runs
            if run.finished_at is not None:
                return run
            await asyncio.sleep(0.01)


def test_settings_of_jobs_are_checked_at_the_start() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"job_base_url": "app.example.com", "job_token": "two\nlines"}, environ={})
    assert {error.pointer for error in caught.value.errors} == {"/job_base_url", "/job_token"}
