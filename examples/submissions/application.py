"""The queue in front of the pipeline, and idempotency around it.

The ack is not trusted: it is lost when a consumer dies after its work. What a message came to is recorded before the
ack, so a second delivery gets the recorded outcome: no second row, no second question to the register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from faststream import FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue
from faststream.rabbit.schemas.queue import ClassicQueueArgs

from mainspring.idempotency import IdempotencyStore, NotDone, Resolved, Unresolved
from mainspring.idempotency.faststream import IdempotentConsumption

from .database import Database
from .pipeline import Pipeline
from .register import CircuitBreaker, Register
from .submission import Outcome


@dataclass(frozen=True, kw_only=True)
class Settings:
    amqp_url: str
    register_url: str
    database: str
    queue: str = "submissions"
    lease_seconds: float = 10.0
    register_timeout_seconds: float = 5.0


def build(settings: Settings, store: IdempotencyStore, *, middlewares: Sequence[Any] = ()) -> FastStream:
    """The application. Outcomes go to the queue `<queue>.outcomes`, rejected messages to `<queue>.rejected`."""
    register = Register(
        settings.register_url, store, CircuitBreaker(), timeout_seconds=settings.register_timeout_seconds
    )
    pipeline = Pipeline(Database(settings.database), register)

    async def resolve(document: dict[str, Any], unresolved: Unresolved) -> Resolved[dict[str, Any]] | NotDone:
        """A consumer died at work. Its row is the last thing it does: with it all is done, without it nothing that
        would show twice, because the register is asked under a key of its own."""
        found = await pipeline.find(document)
        return NotDone() if found is None else Resolved(_plain(found))

    consumption = IdempotentConsumption(
        store,
        keep=lambda outcome: outcome["status"] != "pending",  # a degraded outcome may be better next time
        resolve=resolve,
        lease_seconds=settings.lease_seconds,
        wait_seconds=settings.lease_seconds + 5,
    )
    broker = RabbitBroker(settings.amqp_url, middlewares=[*middlewares, consumption], logger=None)
    rejected: ClassicQueueArgs = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{settings.queue}.rejected",
    }

    @broker.publisher(RabbitQueue(f"{settings.queue}.outcomes", durable=True))
    @broker.subscriber(RabbitQueue(settings.queue, durable=True, arguments=rejected))
    async def submit(document: dict[str, Any]) -> dict[str, Any]:
        return _plain(await pipeline.process(document))

    app = FastStream(broker, logger=None)

    @app.after_startup
    async def declare() -> None:
        for name in (f"{settings.queue}.outcomes", f"{settings.queue}.rejected"):
            await broker.declare_queue(RabbitQueue(name, durable=True))

    app.after_shutdown(store.aclose)
    return app


def _plain(outcome: Outcome) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(outcome)
    return plain
