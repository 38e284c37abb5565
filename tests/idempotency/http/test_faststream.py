"""The FastStream middleware on a real RabbitMQ: what runs, what is given again, what is sent back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from itertools import count
from typing import Any

import pydantic
import pytest
from faststream.rabbit import RabbitBroker, RabbitQueue

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import InMemoryStore, UnknownOutcome
from mainspring.idempotency.faststream import IdempotentConsumption
from tests.idempotency.stalling_store import Stalling
from tests.servers.rabbitmq import RabbitMQ

_numbers = count(1)


class Bench:
    """A broker with a queue of its own, and a subscriber that answers as told."""

    def __init__(self, url: str, store: InMemoryStore | None = None, **options: Any) -> None:
        self.store = InMemoryStore() if store is None else store
        self.consumption = IdempotentConsumption(self.store, **options)
        self.broker = RabbitBroker(url, middlewares=[self.consumption], logger=None)
        self.queue = f"edges-{os.getpid()}-{next(_numbers)}"
        self.runs: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.rejected: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        dead = f"{self.queue}.dead"
        arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}

        @self.broker.subscriber(RabbitQueue(self.queue, auto_delete=True, arguments=arguments))
        async def consume(document: dict[str, Any]) -> dict[str, Any]:
            self.runs.append(document)
            if self.failures:
                raise self.failures.pop()
            return {"run": len(self.runs)}

        self.cemetery = RabbitBroker(url, logger=None)  # a broker of its own: equal letters are not one here

        @self.cemetery.subscriber(RabbitQueue(dead, auto_delete=True))
        async def bury(document: dict[str, Any]) -> None:
            await self.rejected.put(document)

    async def ask(self, document: dict[str, Any], **headers: Any) -> dict[str, Any]:
        """Publish, and wait for what the subscriber returns."""
        answer = await self.broker.request(document, self.queue, headers=headers, timeout=10)
        found: dict[str, Any] = await answer.decode()  # type: ignore[assignment]
        return found


@pytest.fixture
async def bench(amqp: RabbitMQ) -> AsyncIterator[Bench]:
    bench = Bench(amqp.fresh())
    async with bench.cemetery, bench.broker:
        await bench.cemetery.start()
        await bench.broker.start()
        yield bench


async def test_a_message_that_is_sent_twice_runs_once_and_is_answered_twice(bench: Bench) -> None:
    assert await bench.ask({"n": 1, "retry_count": 0}) == {"run": 1}
    assert await bench.ask({"n": 1, "retry_count": 1, "received_at": "later"}) == {"run": 1}
    assert await bench.ask({"n": 2}) == {"run": 2}
    assert [document["n"] for document in bench.runs] == [1, 2]


async def test_a_key_in_the_header_takes_precedence_over_the_body(bench: Bench) -> None:
    assert await bench.ask({"n": 1}, **{"Idempotency-Key": "a"}) == {"run": 1}
    assert await bench.ask({"n": 1}, **{"Idempotency-Key": "b"}) == {"run": 2}
    assert await bench.ask({"n": 1}, **{"Idempotency-Key": "a"}) == {"run": 1}


async def test_a_key_is_the_same_in_quotes_and_without(bench: Bench) -> None:
    assert await bench.ask({"n": 1}, **{"Idempotency-Key": '"a"'}) == {"run": 1}
    assert await bench.ask({"n": 1}, **{"Idempotency-Key": "a"}) == {"run": 1}


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal


class Receipt(pydantic.BaseModel):
    day: date
    lines: list[Line]


async def test_a_pydantic_model_is_answered_as_it_is_published(bench: Bench) -> None:
    queue, ran = f"{bench.queue}.model", []

    @bench.broker.subscriber(RabbitQueue(queue, auto_delete=True))
    async def receipt(line: Line) -> Receipt:
        ran.append(line)
        return Receipt(day=date(2026, 2, 28), lines=[line])

    await bench.broker.start()
    answers = [await bench.broker.request({"sku": "a", "price": "1.10"}, queue, timeout=10) for _ in range(2)]
    assert answers[0].body == answers[1].body
    assert await answers[1].decode() == {"day": "2026-02-28", "lines": [{"sku": "a", "price": "1.10"}]}
    assert len(ran) == 1


async def test_a_key_that_is_used_for_another_body_is_rejected(bench: Bench) -> None:
    await bench.ask({"n": 1}, **{"Idempotency-Key": "a"})
    await bench.broker.publish({"n": 2}, bench.queue, headers={"Idempotency-Key": "a"})
    async with asyncio.timeout(10):
        assert await bench.rejected.get() == {"n": 2}
    assert len(bench.runs) == 1


async def test_work_that_does_not_know_how_it_ended_goes_to_the_dead_letters_and_never_runs_again(bench: Bench) -> None:
    bench.failures = [UnknownOutcome("the call timed out")]
    async with asyncio.timeout(10):
        for _ in range(2):
            await bench.broker.publish({"n": 1}, bench.queue)
            assert await bench.rejected.get() == {"n": 1}
    assert len(bench.runs) == 1


async def test_work_that_fails_is_not_recorded(bench: Bench) -> None:
    bench.failures = [ValueError("no")]
    await bench.broker.publish({"n": 1}, bench.queue)
    async with asyncio.timeout(10):
        await bench.rejected.get()
    assert await bench.ask({"n": 1}) == {"run": 2}


async def test_a_message_comes_again_when_the_store_is_back(bench: Bench) -> None:
    claim, tries = bench.store.claim, 0

    async def down_at_first(*given: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable
        return await claim(*given, **named)

    bench.store.claim = down_at_first  # type: ignore[method-assign]
    assert await bench.ask({"n": 1}) == {"run": 1}
    assert (tries, bench.rejected.qsize()) == (2, 0)


async def test_a_message_whose_claim_was_applied_late_comes_again_and_runs(amqp: RabbitMQ) -> None:
    store = Stalling()
    bench = Bench(amqp.fresh(), store)
    async with bench.cemetery, bench.broker, asyncio.timeout(20):
        await bench.cemetery.start()
        await bench.broker.start()
        store.is_stalled = True
        answer = asyncio.create_task(bench.ask({"n": 1}))
        while not store.late:  # noqa: ASYNC110 - threads use this store, too
            await asyncio.sleep(0.01)
        store.now += 3_600_000  # every lease has passed
        store.go_on()
        assert await answer == {"run": 1}
    assert bench.rejected.empty()


async def test_work_whose_outcome_cannot_be_recorded_is_answered_all_the_same(amqp: RabbitMQ) -> None:
    bench = Bench(amqp.fresh(), lease_seconds=0.2)

    async def down(*_: object, **__: object) -> bool:
        raise StoreUnavailable

    bench.store.replace = down  # type: ignore[method-assign]
    async with bench.broker:
        await bench.broker.start()
        assert await bench.ask({"n": 1}) == {"run": 1}
    assert len(bench.runs) == 1


async def test_a_message_that_is_in_progress_elsewhere_comes_again(amqp: RabbitMQ) -> None:
    bench = Bench(amqp.fresh(), wait_seconds=0.05)
    entered, gate = asyncio.Event(), asyncio.Event()
    queue = f"{bench.queue}.slow"
    runs: list[int] = []

    @bench.broker.subscriber(RabbitQueue(queue, auto_delete=True))
    async def slow(document: dict[str, int]) -> str:
        runs.append(document["n"])
        entered.set()
        await gate.wait()
        return "done"

    async with bench.broker, asyncio.timeout(10):
        await bench.broker.start()
        first = asyncio.create_task(bench.broker.request({"n": 1}, queue, timeout=10))
        await entered.wait()
        second = asyncio.create_task(bench.broker.request({"n": 1}, queue, timeout=10))
        await asyncio.sleep(0.3)  # it is refused and comes again, several times
        gate.set()
        assert [await answer.decode() for answer in (await first, await second)] == ["done", "done"]
    assert runs == [1]


async def test_two_subscribers_do_not_share_keys(amqp: RabbitMQ) -> None:
    bench = Bench(amqp.fresh())
    other = f"{bench.queue}.other"

    @bench.broker.subscriber(RabbitQueue(other, auto_delete=True))
    async def consume_otherwise(document: dict[str, int]) -> str:
        return "other"

    async with bench.broker:
        await bench.broker.start()
        assert await bench.ask({"n": 1}) == {"run": 1}
        answer = await bench.broker.request({"n": 1}, other, timeout=10)
        assert await answer.decode() == "other"
