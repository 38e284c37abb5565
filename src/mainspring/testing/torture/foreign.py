"""Timers that are created in somebody else's transaction, which stays open for a while: on the SQL stores.

Whoever cannot commit knows that nothing was done; whoever gets no answer to its commit knows nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET

from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.testing.oracle.journal import AnyEvent, Fault
from mainspring.testing.simulation.plan import Operation
from mainspring.testing.torture.hosts import now_us
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.transactional.writer import TimerWriter
from mainspring.wire.instants import to_instant, to_ms

CONNECT_SECONDS: Final = 2.0
SQLITE_HOLD_MS: Final = 50
"""There, one writer at a time holds up all others."""


def has_transactions(store_url: str) -> bool:
    return urlsplit(store_url).scheme in ("sqlite", "postgresql", "mysql")


class Foreigner:
    def __init__(self, store_url: str, write: Callable[[AnyEvent], None]) -> None:
        self._url = store_url
        self._write = write
        self._writer = TimerWriter(namespace="default")

    async def __call__(self, name: str, operation: Operation, request: CreateTimer) -> TimerView:
        hold_ms = operation.hold
        if self._url.startswith("sqlite:"):
            hold_ms = min(hold_ms, SQLITE_HOLD_MS)
        committing = False
        started = now_us()
        try:
            async with _transaction(self._url) as (connection, commit):
                view = await self._create(connection, request)
                await asyncio.sleep(hold_ms / 1000)
                committing = True
                await commit()
        except MainspringError:
            raise
        except Exception as error:  # any kind, from a driver: what matters is how far it got
            failed = StoreUnavailable(f"{type(error).__name__}: {error}")
            failed.outcome_unknown = committing
            raise failed from error
        finally:
            self._write(Fault(at=started, until=now_us(), kind="foreign-lock", id=request.timer_id))
        return view

    async def _create(self, connection: Any, request: CreateTimer) -> TimerView:
        execute_at = None if request.execute_at is UNSET else to_instant(to_ms(request.execute_at))
        delay_seconds = None if request.delay_seconds is UNSET else request.delay_seconds
        return await self._writer.acreate(
            connection,
            request.timer_id,
            callback_url=request.callback_url,
            execute_at=execute_at,
            delay_seconds=delay_seconds,
            payload=request.payload,
            labels=request.labels,
            retry_policy=request.retry_policy,
            callback_timeout_seconds=request.callback_timeout_seconds,
            delivery=request.delivery,
        )


@asynccontextmanager
async def _transaction(url: str) -> AsyncIterator[tuple[Any, Callable[[], Any]]]:
    """A connection with a transaction, and how to commit it; otherwise it is rolled back."""
    match urlsplit(url).scheme:
        case "postgresql":
            import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  (each store has its own driver)

            connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS)
            try:
                transaction = connection.transaction()
                await transaction.start()
                yield connection, transaction.commit
            finally:
                connection.terminate()
        case "mysql":
            import asyncmy  # noqa: PLC0415

            address = urlsplit(url)
            connection = await asyncmy.connect(
                host=address.hostname,
                port=address.port,
                user=address.username,
                db=address.path.strip("/"),
                connect_timeout=CONNECT_SECONDS,
            )
            try:
                await connection.begin()
                yield connection, connection.commit
            finally:
                connection.close()
        case _:
            plain = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1.0, isolation_level=None)
            try:
                plain.execute("BEGIN IMMEDIATE")

                async def commit() -> None:
                    plain.execute("COMMIT")

                yield plain, commit
            finally:
                plain.close()
