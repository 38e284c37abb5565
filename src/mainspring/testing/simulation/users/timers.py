"""Clients of timers: they speak through the SDK, and write down what they ask for and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from mainspring.client import AsyncClient
from mainspring.client._async.timers import AsyncTimers
from mainspring.client.arguments import to_payload
from mainspring.errors import MainspringError
from mainspring.model import Delivery, State
from mainspring.namespaces.service import DEFAULT
from mainspring.testing.oracle.journal import AnyEvent, Asked, Fail, Info, Invoke, Ok, View
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.desks import Payload
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.plan import Operation, World
from mainspring.testing.simulation.receivers import host_of
from mainspring.testing.simulation.users.clients import Clients
from mainspring.testing.simulation.wire import Wire
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.wire.instants import to_instant, to_ms

RESHARD_SECONDS: Final = 1.0
RESHARD_TURNS: Final = 100
READS: Final = frozenset({"get", "list"})
Foreign = Callable[[str, Operation, CreateTimer], Awaitable[TimerView]]


class TimerAsking:
    """Carries out operations and writes them down, whatever the world is made of."""

    def __init__(
        self,
        world: World,
        *,
        write: Callable[[AnyEvent], None],
        now_us: Callable[[], int],
        wall_ms: Callable[[], int],
        beginning_ms: int,
        host: Callable[[int], str],
        address: Callable[[int], str],
        connect: Callable[[str, Operation, str], AsyncClient],
        foreign: Foreign,
    ) -> None:
        """`wall_ms` is the store's clock, by which clients set theirs, and `beginning_ms` what it says at the start of
        the run; `host` names a destination, `address` the process that an instance number is at the moment; `connect`
        gives a client for an operation; `foreign` creates a timer in somebody else's transaction."""
        self._world = world
        self._write = write
        self._now_us = now_us
        self._wall_ms = wall_ms
        self._beginning_ms = beginning_ms
        self._host = host
        self._address = address
        self._connect = connect
        self._foreign = foreign

    async def carry_out(self, name: str, operation: Operation) -> None:
        known = await self._ask(name, operation)
        if not known and operation.again and operation.verb not in READS and operation.ids:
            look = Operation(client=operation.client, at=0, verb="get", ids=operation.ids[:1], node=operation.node)
            await self._ask(f"{name}?", look)

    async def _ask(self, name: str, operation: Operation) -> bool:
        """Whether it is known what became of it."""
        verb = operation.verb
        node = self._address(operation.node)
        requests = self._creates(name, operation)
        self._write(
            Invoke(
                at=self._now_us(),
                op=name,
                client=f"c{operation.client}",
                verb=verb,
                items=self._asked(operation, requests),
                node="" if verb == "transaction" else node,
            )
        )
        client = self._connect(name, operation, node)
        try:
            views, changed = await self._speak(client, name, operation, requests)
        except MainspringError as error:
            if error.outcome_unknown:
                self._write(Info(at=self._now_us(), op=name, reason=error.detail))
                return False
            self._write(Fail(at=self._now_us(), op=name, code=error.code))
            return True
        self._write(Ok(at=self._now_us(), op=name, views=views, changed=changed))
        return True

    async def _speak(
        self, client: AsyncClient, name: str, operation: Operation, requests: list[CreateTimer]
    ) -> tuple[tuple[View, ...], int | None]:
        timers = client.timers
        id = operation.ids[0] if operation.ids else ""
        plain = {"get": timers.get, "run-now": timers.run_now, "park": timers.park, "resume": timers.resume}
        bulk = {"bulk-delete": timers.bulk_delete, "bulk-park": timers.bulk_park, "bulk-resume": timers.bulk_resume}
        if operation.verb in bulk:
            where: dict[str, Any] = {"labels": {"l": operation.label}} if operation.label else {"all": True}
            return (), (await bulk[operation.verb](**where)).changed
        found: Sequence[TimerView]
        match operation.verb:
            case "create":
                found = [await _create(timers, requests[0])]
            case "create-batch":
                results = (await timers.create_batch(requests)).results
                found = [result.timer for result in results if result.timer is not None]
            case "update":
                found = [await timers.update(id, **_changes(operation, requests[0]))]
            case "delete":
                found = [(await timers.delete(id)).timer]
            case "list":
                found = (await timers.list(limit=20, states=_states(operation))).timers
            case "transaction":
                found = [await self._foreign(name, operation, requests[0])]
            case verb:
                found = [await plain[verb](id)]
        return tuple(map(_view_of, found)), None

    # --- what it says ---------------------------------------------------------------------------------------

    def _creates(self, name: str, operation: Operation) -> list[CreateTimer]:
        if operation.verb not in ("create", "create-batch", "update", "transaction"):
            return []
        due: dict[str, Any] = {}
        if operation.instant is not None:
            due["execute_at"] = self._beginning_ms + operation.instant
        elif operation.delay is not None and operation.delay < 0:
            due["execute_at"] = self._wall_ms() + operation.delay
        else:
            due["delay_seconds"] = (operation.delay or 0) / 1000
        made = []
        for place, id in enumerate(operation.ids):
            destination = (operation.destination + place) % len(self._world.destinations)
            made.append(
                CreateTimer(
                    timer_id=id,
                    callback_url=f"http://{self._host(destination)}/hook",
                    payload=to_payload(Payload(f"{name}.{place}")),
                    labels={"l": operation.label} if operation.label else {},
                    retry_policy=self._world.policies[operation.policy],
                    callback_timeout_seconds=operation.call_timeout / 1000,
                    delivery=Delivery.AT_MOST_ONCE if operation.at_most_once else Delivery.AT_LEAST_ONCE,
                    **due,
                )
            )
        return made

    def _asked(self, operation: Operation, requests: list[CreateTimer]) -> tuple[Asked, ...]:
        if operation.verb.startswith("bulk-") or operation.verb == "list":
            return ()
        if not requests:
            return tuple(Asked(id=id) for id in operation.ids)
        if operation.verb == "update":
            asked = self._asked_of(requests[0])
            return (
                Asked(
                    id=asked.id,
                    due_ms=asked.due_ms if _moves(operation) else None,
                    mark=asked.mark,
                    host=asked.host if operation.label else None,
                ),
            )
        return tuple(map(self._asked_of, requests))

    def _asked_of(self, request: CreateTimer) -> Asked:
        if request.execute_at is not UNSET:
            due_ms = to_ms(request.execute_at)
        else:
            assert request.delay_seconds is not UNSET
            due_ms = self._wall_ms() + round(request.delay_seconds * 1000)
        return Asked(
            id=request.timer_id,
            due_ms=due_ms,
            delivery=request.delivery.value,
            policy=request.retry_policy,
            mark=msgspec.json.decode(bytes(request.payload), type=Payload).mark,  # type: ignore[arg-type]
            host=request.callback_url.removeprefix("http://").removesuffix("/hook"),
            timeout_ms=round(request.callback_timeout_seconds * 1000),
            labels=request.labels,
        )


async def _create(timers: AsyncTimers, request: CreateTimer) -> TimerView:
    return await timers.create(
        request.timer_id,
        callback_url=request.callback_url,
        execute_at=None if request.execute_at is UNSET else to_instant(to_ms(request.execute_at)),
        delay_seconds=None if request.delay_seconds is UNSET else request.delay_seconds,
        payload=request.payload,
        labels=request.labels,
        retry_policy=request.retry_policy,
        callback_timeout_seconds=request.callback_timeout_seconds,
        delivery=request.delivery,
    )


def _changes(operation: Operation, wanted: CreateTimer) -> dict[str, Any]:
    """An update of the payload, of the time unless that is an hour away, and sometimes of the destination."""
    changes: dict[str, Any] = {"payload": wanted.payload}
    if _moves(operation):
        if wanted.execute_at is not UNSET:
            changes["execute_at"] = to_instant(to_ms(wanted.execute_at))
        else:
            changes["delay_seconds"] = wanted.delay_seconds
    if operation.label:
        changes["callback_url"] = wanted.callback_url
    return changes


class TimerUsers(Clients):
    """The clients of a simulation."""

    def __init__(
        self,
        loop: SimulatedLoop,
        world: World,
        wire: Wire,
        *,
        journal: list[AnyEvent],
        address: Callable[[int], str],
        foreign: Foreign,
        wall_ms: Callable[[], int],
    ) -> None:
        super().__init__(loop, world, wire, journal=journal, address=address, wall_ms=wall_ms)
        self._asking = TimerAsking(
            world,
            write=journal.append,
            now_us=lambda: loop.now_us,
            wall_ms=wall_ms,
            beginning_ms=EPOCH_MS,
            host=host_of,
            address=address,
            connect=self._client,
            foreign=foreign,
        )

    async def _carry_out(self, name: str, operation: Operation) -> None:
        await self._asking.carry_out(name, operation)

    async def reshard(self, shard_count: int) -> None:
        """Ask one instance after the other until the namespace has so many shards."""
        for turn in range(RESHARD_TURNS):
            await asyncio.sleep(RESHARD_SECONDS)
            node = self._address(turn % self._world.instances)
            client = self._client(f"reshard-{turn}", Operation(client=99, at=0, verb="reshard"), node)
            with suppress(MainspringError):
                await client.namespaces.reshard(DEFAULT, shard_count=shard_count)
                return


def _moves(operation: Operation) -> bool:
    return operation.delay is None or operation.delay < 3_600_000


def _states(operation: Operation) -> tuple[State, ...]:
    return (State.PARKED,) if operation.label else ()


def _view_of(timer: TimerView) -> View:
    payload = msgspec.json.decode(timer.payload_json, type=Payload | None)
    return View(
        id=timer.timer_id,
        delivery_id=timer.delivery_id,
        generation=timer.generation,
        state=timer.state.value,
        attempts=timer.attempts,
        due_ms=to_ms(timer.execute_at),
        mark="" if payload is None else payload.mark,
    )
