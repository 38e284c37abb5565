"""The submissions example on a real RabbitMQ: redelivery, crashes and double sending make one record and one call."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from submissions.database import Database
from submissions.register_server import FEE_CENTS, RegisterServer

from tests.servers.rabbitmq import RabbitMQ
from tests.support.source_tree import ROOT

SECONDS = 30
ACME = {"broker": "Lloyd", "insured": "Acme Ltd", "country": "DE", "line": "cyber", "sum_insured": 100_000_000}
_numbers = count(1)


class Desk:
    """A queue of submissions, what consumers of it use, and what came of it."""

    def __init__(self, amqp_url: str, register: RegisterServer, directory: Path) -> None:
        self.register = register
        self.database = Database(str(directory / "submissions.db"))
        self.amqp_url = amqp_url
        self._runs = directory / "runs"
        self.queue = f"submissions-{os.getpid()}-{next(_numbers)}"
        self._settings = {
            "amqp_url": amqp_url,
            "register_url": register.url,
            "database": str(directory / "submissions.db"),
            "keys": str(directory / "keys.db"),
            "runs": str(directory / "runs"),
            "queue": self.queue,
            "lease_seconds": 1.0,
        }

    @property
    def runs(self) -> int:
        """How often the pipeline ran, in whichever process."""
        return len(self._runs.read_text().splitlines())

    @asynccontextmanager
    async def consumer(self, crash: str = "never") -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.idempotency.http.consumer",
            json.dumps(self._settings),
            crash,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'examples'}:{ROOT}"},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def dies(self, crash: str) -> None:
        """A consumer takes a message and dies there."""
        async with self.consumer(crash) as process, asyncio.timeout(SECONDS):
            assert await process.wait() == -9

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
        connection = await aio_pika.connect(self.amqp_url)
        async with connection, connection.channel() as channel:
            yield channel

    async def send(self, **changes: Any) -> None:
        """Publish a submission, as a broker's system would: new envelope each time."""
        body = {**ACME, "received_at": os.urandom(4).hex(), "retry_count": next(_numbers), **changes}
        async with self.channel() as channel:
            arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{self.queue}.rejected"}
            await channel.declare_queue(self.queue, durable=True, arguments=arguments)
            message = aio_pika.Message(json.dumps(body).encode(), content_type="application/json")
            await channel.default_exchange.publish(message, self.queue)

    async def outcomes(self, number: int) -> list[dict[str, Any]]:
        """The next outcomes, as many as asked for."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(SECONDS), self.channel() as channel:
            queue = await channel.declare_queue(f"{self.queue}.outcomes", durable=True)
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        found.append(json.loads(message.body))
                    if len(found) == number:
                        break
        return found

    def assert_one_record_one_call_one_price(self) -> None:
        assert self.register.calls == ["acme"]
        assert list(self.register.charged.values()) == [FEE_CENTS]
        assert [(stored.insured, stored.price) for stored in self.database.all()] == [("Acme Ltd", 2_000_000)]


@pytest.fixture
def register() -> Iterator[RegisterServer]:
    with RegisterServer() as server:
        yield server


@pytest.fixture
def desk(amqp: RabbitMQ, register: RegisterServer, tmp_path: Path) -> Desk:
    return Desk(amqp.fresh(), register, tmp_path)


PRICED = {"status": "priced", "submission_id": 1, "price": 2_000_000, "reason": ""}


async def test_an_upstream_that_sends_twice_makes_one_record_one_call_and_one_price(desk: Desk) -> None:
    for _ in range(3):
        await desk.send()
    async with desk.consumer(), desk.consumer():
        assert await desk.outcomes(3) == [PRICED] * 3
    assert desk.runs == 1
    desk.assert_one_record_one_call_one_price()


@pytest.mark.parametrize(
    ("crash", "outcomes", "runs"),
    [
        pytest.param("before_store", 1, 2, id="before the row: it runs again, and the register is not asked again"),
        pytest.param("before_record", 1, 1, id="after the row: the row tells that all is done"),
        pytest.param("before_ack", 2, 1, id="after the record: the outcome is published again"),
    ],
)
async def test_a_consumer_that_dies_leaves_its_message_to_another_and_nothing_is_done_twice(
    desk: Desk, crash: str, outcomes: int, runs: int
) -> None:
    await desk.send()
    await desk.dies(crash)
    assert (desk.register.calls, desk.runs) == (["acme"], 1)
    async with desk.consumer():
        assert await desk.outcomes(outcomes) == [PRICED] * outcomes
    assert desk.runs == runs
    desk.assert_one_record_one_call_one_price()


async def test_a_similar_name_is_a_duplicate_and_bad_submissions_end_early(desk: Desk) -> None:
    async with desk.consumer():
        await desk.send()
        assert await desk.outcomes(1) == [PRICED]
        await desk.send(insured="ACME Limited", broker="Aon")
        await desk.send(country="KP")
        await desk.send(sum_insured=-1)
        await desk.send(sum_insured=10**11)
        outcomes = await desk.outcomes(4)
    assert sorted(outcome["status"] for outcome in outcomes) == ["declined", "duplicate", "invalid", "referred"]
    desk.assert_one_record_one_call_one_price()


async def test_a_degraded_outcome_is_not_kept_and_gets_its_price_when_the_register_is_back(desk: Desk) -> None:
    desk.register.is_failing = True
    async with desk.consumer():
        await desk.send()
        assert [outcome["status"] for outcome in await desk.outcomes(1)] == ["pending"]
        assert [stored.price for stored in desk.database.all()] == [None]
        desk.register.is_failing = False
        desk.register.calls.clear()
        await desk.send()
        await desk.send()
        assert await desk.outcomes(2) == [PRICED] * 2
    desk.assert_one_record_one_call_one_price()


async def test_the_example_runs_as_its_page_says_and_ends_in_order(desk: Desk, tmp_path: Path) -> None:
    files = ["--database", str(tmp_path / "own.db"), "--keys", str(tmp_path / "own-keys.db")]
    await desk.send()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "submissions", "--amqp", desk.amqp_url, "--queue", desk.queue, *files),
        cwd=ROOT / "examples",
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        assert await desk.outcomes(1) == [PRICED]
        process.terminate()
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
