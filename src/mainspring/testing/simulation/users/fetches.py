"""Clients of fetches: they request calls, request the same ones again, ask how they ended, and cancel some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.client import AsyncClient
from mainspring.errors import MainspringError
from mainspring.fetches.arguments import FetchFields
from mainspring.fetches.messages import FetchView
from mainspring.fetches.record import FETCHES, NAMESPACE, WATCHDOG_MS, Fetch, decode
from mainspring.fetches.views import result_of
from mainspring.model import Namespace, Timer
from mainspring.namespaces.service import SYSTEM
from mainspring.testing.oracle.journal import Asked, Fetched, Invoke, View
from mainspring.testing.simulation.desks import RESULT, TARGET, mark_of
from mainspring.testing.simulation.node import POOL
from mainspring.testing.simulation.plan import Operation
from mainspring.testing.simulation.receivers import host_of
from mainspring.testing.simulation.tables import Tables
from mainspring.testing.simulation.users.clients import Clients
from mainspring.wire.instants import to_ms

PATIENCE_MS: Final = 15_000
"""How long a client waits at most for the expiry of a record."""
BESIDE_MS: Final = 50
"""This close to the expiry counts as at the expiry."""
LONGEST_MS: Final = 3_000
"""How long a call may take at most."""
AIR_MS: Final = 5_000


class FetchUsers(Clients):
    def __init__(self, *args: Any, tables: Tables, sometimes: Callable[[str], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tables = tables
        self._sometimes = sometimes
        self._ended_ms: dict[str, int] = {}
        """When fetches ended, as clients were told last."""

    async def _carry_out(self, name: str, operation: Operation) -> None:
        if operation.verb == "again":
            await self._await_expiry(operation)
            operation = replace(operation, verb="create")
        known = await self._ask(name, operation)
        if not known and operation.again:
            await self._ask(f"{name}?", replace(operation, verb="get"))

    async def _await_expiry(self, operation: Operation) -> None:
        ended_ms = self._ended_ms.get(operation.ids[0])
        if ended_ms is not None and operation.delay is not None:
            wait = ended_ms + self._world.fetch_retention - self._wall_ms() + operation.delay
            if 0 < wait < PATIENCE_MS:
                await asyncio.sleep(wait / 1000)

    async def _ask(self, name: str, operation: Operation) -> bool:
        """Whether it is known what became of it."""
        node = self._address(operation.node)
        req_id = operation.ids[0]
        asked = Asked(id=req_id)
        if operation.verb == "create":
            self._note_expiry(req_id)
            asked = Asked(id=req_id, host=host_of(operation.destination), timeout_ms=operation.call_timeout)
        self._journal.append(
            Invoke(
                at=self._loop.now_us,
                op=name,
                client=f"c{operation.client}",
                service="fetches",
                verb=operation.verb,
                items=(asked,),
                node=node,
            )
        )
        try:
            fetch = await self._speak(self._client(name, operation, node), req_id, operation)
        except MainspringError as error:
            return self._failed(name, error)
        if fetch.result is not None:
            self._ended_ms[req_id] = to_ms(fetch.result.finished_at)
        return self._answered(name, ((_view(fetch),), None))

    async def _speak(self, client: AsyncClient, req_id: str, operation: Operation) -> FetchView:
        match operation.verb:
            case "create":
                fields: FetchFields = {
                    "req_id": req_id,
                    "method": "POST" if operation.method == "POST" else "GET",
                    "timeout_seconds": operation.call_timeout / 1000,
                    "delivery_seconds": operation.keeps / 1000,
                }
                if operation.origin is not None:
                    fields["result_url"] = f"http://{host_of(operation.origin)}/{RESULT}"
                if operation.executor:
                    fields["executor"] = POOL
                return await client.fetches.create(
                    f"http://{host_of(operation.destination)}/{TARGET}/{req_id}", **fields
                )
            case "get":
                return await client.fetches.get(req_id)
            case "wait":
                return await client.fetches.wait(req_id, operation.hold / 1000)
            case "cancel":
                return await client.fetches.cancel(req_id)
            case verb:
                raise AssertionError(verb)

    def _note_expiry(self, req_id: str) -> None:
        record = self._tables.get_record(FETCHES, req_id, now=0)  # even one that has expired
        if (
            record is not None
            and record.expires_at is not None
            and abs(record.expires_at - self._wall_ms()) < BESIDE_MS
        ):
            self._sometimes("reqId asked again at its expiry")

    # --- what is there ----------------------------------------------------------------------------------------

    def is_owed(self, healed_at: int) -> bool:
        """Whether a fetch has not ended although its time is not over, or a result may still be offered soon."""
        patience = LONGEST_MS + WATCHDOG_MS + round(self._world.lease_seconds * 1000) + AIR_MS
        if self._loop.now_us > healed_at + patience * 1000:
            return False
        return any(not fetch.is_final or fetch.delivery.state == "waiting" for fetch, _ in self._fetches())

    def left(self) -> tuple[Fetched, ...]:
        return tuple(self._fetched(fetch, row) for fetch, row in self._fetches())

    @property
    def shards(self) -> Sequence[int]:
        namespace = self._namespace()
        return namespace.shards if namespace is not None else range(0)

    def given_up(self, stopped: Container[str]) -> bool:
        """Whether one of these processes, which were asked to stop, has given up a call."""
        return any(
            fetch.executor.rpartition("/")[2] in stopped
            and fetch.outcome is not None
            and fetch.outcome.failure is not None
            and fetch.outcome.failure.message.startswith(f"The executor {fetch.executor} stopped")
            for fetch, _ in self._fetches()
        )

    def _fetches(self) -> Iterator[tuple[Fetch, Timer | None]]:
        """Every fetch with its row, including those whose record has expired but was not removed yet."""
        namespace = self._namespace()
        if namespace is None:
            return
        for record in self._tables.scan_records(FETCHES, now=0, limit=1_000_000):
            [row] = self._tables.get([namespace.key_of(record.key)])
            yield decode(record.value), row

    def _namespace(self) -> Namespace | None:
        record = self._tables.get_record(SYSTEM, NAMESPACE, now=0)
        return None if record is None else msgspec.json.decode(record.value, type=Namespace)

    def _fetched(self, fetch: Fetch, row: Timer | None) -> Fetched:
        now = self._wall_ms()
        expired = fetch.expires_at is not None and fetch.expires_at <= now
        offered_at = max(now, fetch.delivery.next_at) + LONGEST_MS + WATCHDOG_MS + AIR_MS  # the watchdog looks, too
        return Fetched(
            id=fetch.req_id,
            delivery_id=life_of(fetch.req_id, fetch.created_at),
            state=fetch.state,
            mark="" if fetch.outcome is None else mark_of(result_of(fetch, fetch.outcome)),
            wanted=fetch.result_url is not None,
            taken=fetch.delivery.state == "delivered",
            offered=row is not None and row.due_at <= offered_at and not expired,
            reason=fetch.delivery.detail if fetch.delivery.state == "failed" else "",
            expired=expired,
        )


def life_of(req_id: str, created_ms: int) -> str:
    """Which of the fetches of an id: there is a new one when the record of the last has expired."""
    return f"{req_id}@{created_ms}"


def _view(fetch: FetchView) -> View:
    return View(
        id=fetch.req_id,
        delivery_id=life_of(fetch.req_id, to_ms(fetch.created_at)),
        state=fetch.state,
        mark="" if fetch.result is None else mark_of(fetch.result),
    )
