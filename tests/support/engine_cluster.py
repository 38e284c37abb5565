"""A simulated cluster for kernel tests: engines on one memory store, and a carrier that keeps a ledger."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mainspring.kernel.carrier import Ending, Lane
from mainspring.kernel.engine import Engine
from mainspring.kernel.ownership import Lease, Ownership
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Delivery, Detail, Namespace, Result, RetryPolicy, Shard, State, Timer
from mainspring.store import Position, Put, Remove, Store, TimerFilter, Verdict, first_version
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import FaultyStore, SimulatedClock, SimulatedLoop, run_simulated
from mainspring.timers.decision import lost

NAMESPACE = Namespace(name="n", first_shard=0, shard_count=4, created_at=0, updated_at=0, secrets=("whsec_x",))


class Sending(Struct, frozen=True):
    """One call that reached the wire."""

    at: int
    timer: Timer
    by: str


class Ledger:
    """What all carriers of a cluster have done."""

    def __init__(self) -> None:
        self.sendings: list[Sending] = []

    def of(self, timer_id: str) -> list[Sending]:
        return [sending for sending in self.sendings if sending.timer.timer_id == timer_id]


class LedgerCarrier:
    """Carries by writing into the ledger. `behave` says how long a call takes and how it ends."""

    def __init__(self, name: str, ledger: Ledger, clock: SimulatedClock, cluster: Cluster) -> None:
        self.name, self.ledger, self.clock, self.cluster = name, ledger, clock, cluster

    def lane(self, timer: Timer) -> Lane:
        url = timer.detail.callback_url
        return Lane(url, self.cluster.lane_limit, namespace="", site=url, room=self.cluster.lane_room)

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        return self.cluster.refuse(timer, now)

    async def carry(self, timer: Timer) -> Ending:
        started_at = self.clock.now_ms()
        self.ledger.sendings.append(Sending(self.cluster.clock.now_ms(), timer, self.name))
        seconds, ending = self.cluster.behave(timer)
        await asyncio.sleep(seconds)
        return replace(ending, started_at=started_at, duration_ms=round(seconds * 1000))

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        return lost(timer, timer.detail.retry_policy or RetryPolicy(), now=now, reason=reason)


def done(**changes: Any) -> Ending:
    return replace(Ending(outcome=Result.SUCCEEDED, next="done", started_at=0), **changes)


class Member:
    """One engine of the cluster, with its own connection and its own clock."""

    def __init__(self, name: str, cluster: Cluster, *, skew_ms: int = 0) -> None:
        self.name = name
        self.clock = SimulatedClock(cluster.loop, skew_ms=skew_ms)
        self.store = FaultyStore(
            cluster.store, cluster.dice, fault_rate=cluster.fault_rate, latency_seconds=cluster.latency_seconds
        )
        self.tasks: set[asyncio.Task[None]] = set()
        self.ownership = Ownership(
            store=self.store,
            clock=self.clock,
            lease=Lease(instance=name),
            lease_seconds=6.0,
            shard_ids=cluster.shard_ids,
            randomness=cluster.dice,
        )
        self.engine = Engine(
            store=self.store,
            clock=self.clock,
            ownership=self.ownership,
            carrier=LedgerCarrier(name, cluster.ledger, self.clock, cluster),
            spawn=self._spawn,
            settings=cluster.settings,
            foreign_writes=cluster.foreign_writes,
        )

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def kill(self) -> None:
        """Like kill -9: nothing is finished, nothing is released."""
        for task in self.tasks:
            task.cancel()


class Cluster:
    def __init__(self, loop: SimulatedLoop, seed: int = 0, settings: EngineSettings | None = None) -> None:
        self.loop = loop
        self.dice = random.Random(seed)
        self.clock = SimulatedClock(loop)
        self.store: Store = MemoryStore(self.clock)
        self.ledger = Ledger()
        self.settings = settings or EngineSettings()
        self.fault_rate = 0.0
        self.latency_seconds = 0.0
        self.lane_limit = 100
        self.lane_room: Callable[[], int] | None = None
        self.foreign_writes: Callable[[], Awaitable[int]] | None = None
        """As of a database on a server, which cannot tell."""
        self.members: list[Member] = []
        self.behave: Callable[[Timer], tuple[float, Ending]] = lambda _: (0.0, done())
        self.refuse: Callable[[Timer, int], Ending | None] = lambda _timer, _now: None

    async def shard_ids(self) -> list[int]:
        return list(NAMESPACE.shards)

    async def join(self, name: str, *, skew_ms: int = 0) -> Member:
        member = Member(name, self, skew_ms=skew_ms)
        self.members.append(member)
        await member.engine.start()
        return member

    def kill(self, member: Member) -> None:
        member.kill()
        self.members.remove(member)

    async def leave(self, member: Member) -> None:
        await member.engine.stop()
        self.kill(member)

    def end(self) -> None:
        for member in list(self.members):
            self.kill(member)

    async def create(
        self,
        timer_id: str,
        *,
        in_ms: int = 0,
        url: str = "http://a",
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
        policy: RetryPolicy | None = None,
        payload: str | None = None,
        announce: bool = True,
    ) -> Timer:
        now = self.clock.now_ms()
        key = NAMESPACE.key_of(timer_id)
        timer = Timer(
            shard_id=key.shard_id,
            uuid=key.uuid,
            namespace="n",
            timer_id=timer_id,
            due_at=now + in_ms,
            version=first_version(self.dice),
            payload=payload,
            detail=Detail(
                execute_at=now + in_ms,
                callback_url=url,
                delivery_id=f"msg_{self.dice.getrandbits(128):032x}",
                created_at=now,
                updated_at=now,
                delivery=delivery,
                retry_policy=policy,
            ),
        )
        assert await self.store.write([Put(timer, 0)]) == [Verdict.APPLIED]
        if announce:
            self.announce(timer)
        return timer

    def announce(self, timer: Timer) -> None:
        for member in self.members:
            member.engine.wake(timer.shard_id, timer.due_at)

    async def change(self, timer_id: str, **fields: Any) -> Timer:
        while True:
            [timer] = await self.store.get([NAMESPACE.key_of(timer_id)])
            assert timer is not None
            changed = replace(timer, **fields)
            if await self.store.write([Put(changed, timer.version)]) == [Verdict.APPLIED]:
                self.announce(changed)
                return timer

    async def delete(self, timer_id: str) -> State | None:
        """Remove a timer; returns the state it was in, None if it was not there."""
        while True:
            [timer] = await self.store.get([NAMESPACE.key_of(timer_id)])
            if timer is None:
                return None
            if await self.store.write([Remove(timer.key, timer.version)]) == [Verdict.APPLIED]:
                return timer.state

    async def owners(self) -> list[Shard]:
        return [shard for shard in await self.store.shards(list(NAMESPACE.shards)) if shard is not None]

    async def rows(self) -> list[Timer]:
        start = Position(-(2**62), "")
        return (await self.store.list_timers(list(NAMESPACE.shards), TimerFilter(), after=start, limit=100_000)).timers


def simulate(scenario: Callable[[Cluster], Coroutine[Any, Any, None]], settings: EngineSettings | None = None) -> None:
    async def main(loop: SimulatedLoop) -> None:
        cluster = Cluster(loop, settings=settings)
        try:
            await scenario(cluster)
        finally:
            cluster.end()
            await asyncio.sleep(0)

    run_simulated(main)
