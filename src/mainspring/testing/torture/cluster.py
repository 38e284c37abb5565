"""The crash test of a cluster: several servers on one store, of which one after the other dies, freezes or leaves.

The clients are spread over the servers. A server that has died comes back at the same address. Stops go through the
servers in order, as a rolling restart does; other blows meet any of them. At the end all run undisturbed until nothing
is pending; then the store is read through its contract, whatever database it is.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final, Literal

import msgspec

from mainspring.client import AsyncClient, State
from mainspring.clock import SystemClock
from mainspring.model import Delivery, Namespace, Timer
from mainspring.store import BATCH_LIMIT, START, Position, Store, TimerFilter
from mainspring.stores import store_from_url
from mainspring.testing.torture.journal import AnyEntry, Arrival, Crash, Journal, StoredAttempt, StoredTimer
from mainspring.testing.torture.process import ServerProcess
from mainspring.testing.torture.receiver import receiving
from mainspring.testing.torture.run import REST_SECONDS, Report, report_on
from mainspring.testing.torture.workload import Workload

Blow = Literal["kill", "freeze", "stop"]
CLIENTS: Final = 12
"""Of each server."""
ANSWER_SECONDS: Final = 0.3
"""How long an answer takes, so that each server always has calls in flight when something happens to it."""
_PENDING: Final = (State.SCHEDULED, State.RUNNING, State.RETRYING)


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """What is to be done to a cluster."""

    store_url: str
    plan: Sequence[Blow]
    seed: int
    servers: int = 3
    lease_seconds: float = 6.0
    renew_seconds: float = 2.0
    pause_seconds: float = 2.0
    """Between one blow and the next."""
    server_urls: Sequence[str] = ()
    """The URL of the store for each server, where they shall not all use the same."""

    @property
    def is_calm(self) -> bool:
        """Whether every server always has the time to finish what it began."""
        return set(self.plan) <= {"stop"}

    def settings(self, server: int) -> dict[str, str]:
        return {
            "store": self.server_urls[server] if self.server_urls else self.store_url,
            "lease_seconds": str(self.lease_seconds),
            "renew_seconds": str(self.renew_seconds),
        }


async def run_cluster(directory: Path, wanted: ClusterRun) -> tuple[Report, list[AnyEntry]]:
    """Carry a plan out, and check it."""
    randomness = random.Random(wanted.seed)
    with Journal(directory / "journal.jsonl") as journal:
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(receiving(journal, answer_seconds=ANSWER_SECONDS))
            servers = [ServerProcess(directory / str(n), **wanted.settings(n)) for n in range(wanted.servers)]
            stack.push_async_callback(_kill_all, servers)
            await _all_ready(servers)
            clients = [await stack.enter_async_context(server.client()) for server in servers]
            workloads = [
                Workload(
                    client=client,
                    target_url=receiver.url,
                    journal=journal,
                    seed=wanted.seed + n,
                    clients=CLIENTS,
                    prefix=f"s{n}-",
                )
                for n, client in enumerate(clients)
            ]
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(workload.run()) for workload in workloads]
                in_order = cycle(range(len(servers)))
                for blow in wanted.plan:
                    await asyncio.sleep(wanted.pause_seconds)
                    which = next(in_order) if blow == "stop" else randomness.randrange(len(servers))
                    await _strike(directory, wanted, servers, which=which, blow=blow, journal=journal)
                await asyncio.sleep(wanted.pause_seconds)
                for workload in workloads:
                    workload.stop()
                await asyncio.gather(*running)
            await _come_to_rest(clients[0])
            for server in servers:
                await _stop(server)
        async for entry in left_in_store(wanted.store_url, journal.entries):
            journal.write(entry)
    return report_on(journal.entries, calm=wanted.is_calm), journal.entries


async def _strike(
    directory: Path, wanted: ClusterRun, servers: list[ServerProcess], *, which: int, blow: Blow, journal: Journal
) -> None:
    victim = servers[which]
    if blow == "freeze":
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(wanted.lease_seconds * 2)
        victim.send(signal.SIGCONT)
    else:
        await (victim.kill() if blow == "kill" else _stop(victim))
        servers[which] = ServerProcess(directory / str(which), port=str(victim.port), **wanted.settings(which))
        await _all_ready([servers[which]])
    journal.write(Crash(at=time.monotonic(), how=blow, server=which))


async def _stop(server: ServerProcess) -> None:
    code = await server.stop()
    if code != 0:
        raise RuntimeError(f"Expected a server that is stopped to end with 0, got {code}: {server.tail()}")


async def _all_ready(servers: Iterable[ServerProcess]) -> None:
    for server in servers:
        if not await server.ready():
            raise RuntimeError(f"Expected a server, got exit code {server.exit_code}: {server.tail()}")


async def _kill_all(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        await server.kill()


async def _come_to_rest(client: AsyncClient) -> None:
    async with asyncio.timeout(REST_SECONDS):
        while True:
            if not (await client.timers.list(states=_PENDING, limit=1)).timers:
                return
            await asyncio.sleep(0.1)


async def left_in_store(url: str, entries: Sequence[AnyEntry]) -> AsyncIterator[AnyEntry]:
    """The timers of the default namespace and the history of all timers that the journal knows."""
    timer_ids = {entry.timer_id for entry in entries if not isinstance(entry, Crash)}
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    try:
        record = await store.get_record("namespace", "default", now=await store.time())
        assert record is not None, "the servers have made it"
        namespace = msgspec.json.decode(record.value, type=Namespace)
        async for timer in _all_timers(store, namespace):
            yield StoredTimer(
                timer_id=timer.timer_id,
                delivery_id=timer.detail.delivery_id,
                generation=timer.generation,
                state=timer.state,
                attempts=timer.attempts,
                at_most_once=timer.detail.delivery is Delivery.AT_MOST_ONCE,
                reason=timer.detail.last_outcome.detail if timer.detail.last_outcome else "",
            )
        for timer_id in sorted(timer_ids):
            for attempt in reversed(await store.history(namespace.key_of(timer_id), limit=BATCH_LIMIT)):
                yield StoredAttempt(
                    timer_id=timer_id,
                    delivery_id=attempt.delivery_id,
                    attempt=attempt.attempt,
                    outcome=attempt.outcome,
                    next=attempt.next,
                )
    finally:
        await store.close()


async def _all_timers(store: Store, namespace: Namespace) -> AsyncIterator[Timer]:
    after = START
    while True:
        page = await store.list_timers(namespace.shards, TimerFilter(), after=after, limit=BATCH_LIMIT)
        for timer in page:
            yield timer
        if len(page) < BATCH_LIMIT:
            return
        after = Position(page[-1].due_at, page[-1].uuid)


def latest_first_arrival_ms(entries: Iterable[AnyEntry]) -> int:
    """How late the first arrival of any delivery was, at most."""
    first: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Arrival):
            first.setdefault(entry.delivery_id, entry.wall_ms - entry.scheduled_at)
    return max(first.values(), default=0)
