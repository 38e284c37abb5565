"""The sample service with a job: called by a real engine, it writes one report for each run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.delivery.signatures import new_secret, sign
from mainspring.jobs.messages import CreateJob, ListRuns, RunView, TriggerJob
from mainspring.namespaces.messages import UpdateNamespace
from tests.support.examples import EXAMPLES, SECONDS, line_with, running
from tests.support.source_tree import ROOT

PATH = "/jobs/trigger/daily-report"


class Service:
    """The running sample, its signing secret, and what somebody outside can do with it."""

    def __init__(self, url: str, token: str, secret: str, sender: Sender) -> None:
        self.url = url
        self.authorization = f"Bearer {token}"
        self.secret = secret
        self._sender = sender

    async def call(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Reply:
        return await self._sender.send(Call(method, self.url + path, tuple(headers.items()), body, 5000))

    async def deliver(self, delivery_id: str, launch_id: str) -> Reply:
        body = json.dumps({"launchId": launch_id, "scheduledAt": "2026-11-01T08:00:00Z"}).encode()
        now = int(time.time())
        headers = {
            "authorization": self.authorization,
            "webhook-id": delivery_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign((self.secret,), message_id=delivery_id, timestamp=now, body=body),
        }
        return await self.call("POST", PATH, headers, body)

    async def reports(self) -> list[dict[str, str]]:
        reply = await self.call("GET", "/reports", {"authorization": self.authorization})
        found: list[dict[str, str]] = json.loads(reply.body)
        return found


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Service]:
    secret = new_secret(os.urandom(32))
    command = (sys.executable, "-m", "daily_report", "--port", "0", "--directory", str(directory), "--secret", secret)
    async with (
        running(*command, PYTHONPATH=str(EXAMPLES)) as process,
        Sender(guard=Guard(allow_loopback=True)) as sender,
    ):
        url = (await line_with(process, "serving at")).split()[-1]
        yield Service(url, (directory / "token").read_text(), secret, sender)


async def finished(instance: Instance, launch_id: str) -> RunView:
    async with asyncio.timeout(SECONDS):
        while True:
            page = await instance.jobs.runs(ListRuns(name="daily-report"))
            run = next(run for run in page.runs if run.launch_id == launch_id)
            if run.finished_at is not None:
                return run
            await asyncio.sleep(0.02)


async def test_a_run_writes_one_report_however_often_it_arrives(tmp_path: Path) -> None:
    config = Config(allow_loopback=True, store=f"sqlite:///{tmp_path / 'mainspring.db'}")
    async with serving(tmp_path / "sample") as service, Instance(config) as instance:
        await instance.namespaces.update(UpdateNamespace(name="default", secret=service.secret))
        await instance.jobs.create(
            CreateJob(
                name="daily-report",
                schedule="0 9 * * *",
                timezone="Europe/Berlin",
                url=service.url + PATH,
                headers={"Authorization": service.authorization},
            )
        )
        launched = await instance.jobs.trigger(TriggerJob(name="daily-report"))
        run = await finished(instance, launched.launch_id)
        assert (run.state, run.status, run.attempts) == ("succeeded", 200, 1)
        [report] = await service.reports()
        assert report["run"] == launched.launch_id
        again = await service.deliver(run.delivery_id, launched.launch_id)
        assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
        assert again.body.decode() == run.answer_head
        assert await service.reports() == [report]


async def test_strangers_and_forgeries_are_turned_away(tmp_path: Path) -> None:
    async with serving(tmp_path / "sample") as service:
        assert (await service.call("POST", PATH, {}, b"{}")).status == 401
        assert (await service.call("GET", "/reports", {"authorization": "Bearer guess"})).status == 401
        unsigned = await service.call("POST", PATH, {"authorization": service.authorization, "webhook-id": "a"}, b"{}")
        assert unsigned.status == 401
        assert (await service.call("GET", "/", {"authorization": service.authorization})).status == 404
        assert await service.reports() == []


def test_without_a_server_and_without_a_secret_it_says_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "MAINSPRING_URL": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "daily_report", "--port", "0", "--directory", str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 1
    assert "Start a server first (make serve)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_one_command_that_starts_it_is_in_the_guide_and_in_the_makefile() -> None:
    assert "make daily-report" in (ROOT / "docs" / "guides" / "jobs.md").read_text()
    assert re.search(r"^daily-report:.*\n\t.*-m daily_report", (ROOT / "Makefile").read_text(), re.MULTILINE)
