"""Seeded histories of a cluster with a bad store, crashes, partitions and wrong wall clocks.

Safety is checked over everything that was sent; liveness after the faults have ended. A failing seed is printed by
its test id, and stays in KEPT.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
from msgspec.structs import replace

from mainspring.kernel.carrier import Ending
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Delivery, Result, State, Timer
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.kernel.cluster import NAMESPACE, Cluster, Member, done

KEPT = (129, 137, 198, 250, 258, 290)
SEEDS = (*KEPT, *range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 60)))


class History:
    """What the users of the cluster were told."""

    def __init__(self) -> None:
        self.expected: dict[str, Timer] = {}
        self.ended_at: dict[str, int] = {}
        """Delivery ids that must no longer start, and since when."""


async def use(cluster: Cluster, history: History, dice: random.Random) -> None:
    for number in range(120):
        await asyncio.sleep(dice.random() * 0.5)
        name = f"t{number}"
        delivery = dice.choice(list(Delivery))
        # Else another member wrote it, or a program that runs no engine, which only a database on a server allows here.
        announce = dice.random() < 0.7 or (cluster.foreign_writes is not None and len(cluster.members) == 1)
        url = f"http://host{dice.randrange(4)}"
        in_ms = dice.randrange(6000)
        history.expected[name] = await cluster.create(name, in_ms=in_ms, url=url, delivery=delivery, announce=announce)
        if dice.random() < 0.3 and history.expected:
            await delete_or_move(cluster, history, dice.choice(list(history.expected)), dice)


async def delete_or_move(cluster: Cluster, history: History, name: str, dice: random.Random) -> None:
    [current] = await cluster.store.get([NAMESPACE.key_of(name)])
    if current is None:
        return
    if dice.random() < 0.5:
        state = await cluster.delete(name)
        ended = history.expected.pop(name)
        if state is not State.RUNNING:
            history.ended_at[ended.detail.delivery_id] = cluster.clock.now_ms()
        return
    due_at = cluster.clock.now_ms() + dice.randrange(5000)
    detail = replace(current.detail, delivery_id=f"msg_{dice.getrandbits(128):032x}")
    before = await cluster.change(
        name, due_at=due_at, detail=detail, state=State.SCHEDULED, attempts=0, generation=current.generation + 1
    )
    if before.state is not State.RUNNING:
        history.ended_at[before.detail.delivery_id] = cluster.clock.now_ms()
    history.expected[name] = replace(current, due_at=due_at, detail=detail)


async def break_things(cluster: Cluster, dice: random.Random) -> None:
    number = 0
    for _ in range(12):
        await asyncio.sleep(dice.random() * 8)
        member: Member = dice.choice(cluster.members)
        what = dice.choice(("kill", "cut", "leave", "join"))
        if what == "kill" and len(cluster.members) > 1:
            cluster.kill(member)
        elif what == "leave" and len(cluster.members) > 1:
            await cluster.leave(member)
        elif what == "cut":
            member.store.cut = True
            await asyncio.sleep(dice.random() * 15)
            member.store.cut = False
        elif what == "join" and len(cluster.members) < 4:
            number += 1
            await join(cluster, f"new{number}", dice)


async def join(cluster: Cluster, name: str, dice: random.Random) -> None:
    rate, cluster.fault_rate = cluster.fault_rate, 0.0  # a start is retried by whoever starts the process
    member = await cluster.join(name, skew_ms=dice.choice((0, 3_600_000, -3_600_000)))
    cluster.fault_rate = member.store.fault_rate = rate


async def nobody_else() -> int:
    return 0


def check_safety(cluster: Cluster, history: History) -> None:
    attempts: dict[str, int] = defaultdict(int)
    fences: dict[int, int] = defaultdict(int)
    for sending in cluster.ledger.sendings:
        timer = sending.timer
        delivery_id = timer.detail.delivery_id
        assert sending.at >= timer.due_at, "sent early"
        assert timer.attempts > attempts[delivery_id], "the count of attempts fell"
        assert timer.fence >= fences[timer.shard_id], "a deposed owner sent"
        if timer.detail.delivery is Delivery.AT_MOST_ONCE:
            assert attempts[delivery_id] == 0, "at-most-once was sent twice"
        if delivery_id in history.ended_at:
            assert sending.at <= history.ended_at[delivery_id], "sent after its acknowledged end"
        attempts[delivery_id] = timer.attempts
        fences[timer.shard_id] = timer.fence


async def check_liveness(cluster: Cluster, history: History) -> None:
    sent = {sending.timer.detail.delivery_id for sending in cluster.ledger.sendings}
    rows = {row.timer_id: row for row in await cluster.rows()}
    for name, timer in history.expected.items():
        if timer.detail.delivery_id in sent:
            continue
        row = rows.get(name)
        assert row is not None, f"{name} is lost"
        # Begun, but its owner died before it was sent: nobody can tell, and nobody sends it again.
        assert timer.detail.delivery is Delivery.AT_MOST_ONCE
        assert row.detail.last_outcome is not None
        assert row.detail.last_outcome.outcome is Result.UNKNOWN
    assert all(row.state is State.PARKED for row in rows.values()), "a row was left behind"
    owners = {shard.owner for shard in await cluster.owners()}
    assert owners <= {member.name for member in cluster.members}, "a shard has no living owner"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_faults_keeps_its_promises(seed: int) -> None:
    async def main(loop: SimulatedLoop) -> None:
        dice = random.Random(seed)
        settings = EngineSettings(
            page_size=dice.choice((2, 7, 500)),
            window_limit=dice.choice((20, 8192)),
            in_flight_limit=dice.choice((3, 100)),
        )
        cluster = Cluster(loop, seed + 1_000_000, settings)
        cluster.fault_rate = dice.choice((0.0, 0.02, 0.1))
        cluster.latency_seconds = dice.choice((0.0, 0.02, 0.2))
        cluster.lane_limit = dice.choice((1, 50))
        if random.Random(f"{seed}/alone").random() < 0.5:
            cluster.foreign_writes = nobody_else

        def behave(timer: Timer) -> tuple[float, Ending]:
            if timer.detail.delivery is Delivery.AT_LEAST_ONCE and dice.random() < 0.2:
                next_at = cluster.clock.now_ms() + dice.randrange(2000)
                return dice.random(), Ending(outcome=Result.FAILED, next="retry", next_at=next_at, started_at=0)
            return dice.random() * dice.choice((0.01, 3.0)), done()

        cluster.behave = behave
        for name in ("a", "b"):
            await join(cluster, name, dice)
        history = History()
        await asyncio.gather(use(cluster, history, dice), break_things(cluster, dice))
        check_safety(cluster, history)
        for member in cluster.members:
            member.store.cut = False
            member.store.fault_rate = 0.0
        await asyncio.sleep(300)
        check_safety(cluster, history)
        await check_liveness(cluster, history)
        cluster.end()
        await asyncio.sleep(0)

    run_simulated(main)
