"""A namespace gets more shards while it is in use: nothing is lost, and nothing is called twice because of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.cluster.instance import Instance
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.model import Namespace, Shard, Timer, TimerKey
from mainspring.namespaces.messages import CreateNamespace, DeleteNamespace, ReshardNamespace, ReshardView
from mainspring.namespaces.reshard import NamespaceReshard
from mainspring.namespaces.service import NamespaceService
from mainspring.namespaces.steps import DAY_MS
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from mainspring.testing.timer_samples import attempt
from mainspring.timers.messages import (
    BulkTimers,
    CreateTimer,
    CreateTimers,
    ListHistory,
    ListTimers,
    TimerRef,
    UpdateTimer,
)
from mainspring.wire.instants import to_instant
from mainspring.wire.strict_json import decode
from tests.namespaces.world import Killed, Mortal, World, simulate, timer_in

OLD = range(16, 20)
"""The shards of the namespace before: the first sixteen are those of `default`."""


class SlowWrites(MemoryStore):
    """Writes of users take a while before they are carried out."""

    seconds = 0.0

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        await asyncio.sleep(self.seconds)
        return await super().write(changes)


class SlowStore(SlowWrites):
    """Everything takes a while, and never as long as before."""

    dice = random.Random(0)
    is_slow = False

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        await self._delay()
        rows = await super().get(keys)
        await self._delay()
        return rows

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        await self._delay()
        return await super().begin(items)

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        await self._delay()
        return await super().write(changes)

    async def _delay(self) -> None:
        if self.is_slow:
            await asyncio.sleep(self.dice.choice([0, 0.001, 0.02, 0.05]))


a_timer = partial(timer_in, "busy")


def ref(name: str) -> TimerRef:
    return TimerRef(namespace="busy", timer_id=name)


async def make(instance: Instance) -> Namespace:
    await instance.namespaces.create(CreateNamespace(name="busy", shard_count=len(OLD)))
    namespace = await instance.namespaces.find("busy")
    assert namespace.shards == OLD
    return namespace


async def reshard(instance: Instance, shards: int = 32) -> ReshardView:
    while not (view := await ask(instance, shards)).active:
        pass
    return view


async def ask(instance: Instance, shards: int = 32) -> ReshardView:
    return await instance.reshard_namespace(ReshardNamespace(name="busy", shard_count=shards))


async def shard_of(instance: Instance, name: str) -> int:
    namespace = await instance.namespaces.find("busy")
    [row] = [row for row in await instance.store.get(namespace.keys_of(name)) if row is not None]
    return row.shard_id


def test_a_namespace_that_was_made_before_there_were_groups_of_keys_has_them_in_its_new_shards_only() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            assert (await make(instance)).grouped
            namespace, version = await instance.namespaces.load("busy")
            await instance.namespaces.rewrite(namespace, replace(namespace, grouped=False), version=version)
            await instance.timers.create(a_timer("old", 60))
            await reshard(instance)
            await instance.timers.create(a_timer("new", 60))
            grown = await instance.namespaces.find("busy")
            assert (grown.grouped, [one.grouped for one in grown.earlier]) == (True, [False])
            assert await shard_of(instance, "old") in OLD
            assert (await instance.timers.get(ref("old"))).timer_id == "old"
            await asyncio.sleep(100)
        assert Counter(world.called) == Counter(["old", "new"])

    simulate(main)


def test_timers_stay_where_they_are_and_new_ones_go_to_the_new_shards() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await make(instance)
            for number in range(20):
                await instance.timers.create(a_timer(f"old {number}", 60))
            view = await reshard(instance)
            assert (view.shard_count, view.first_shard) == (32, OLD.stop)
            [left] = view.earlier
            assert (left.first_shard, left.shard_count, left.timers) == (OLD.start, len(OLD), 20)
            for number in range(20):
                await other.timers.create(a_timer(f"new {number}", 60))
            batch = [msgspec.json.encode(a_timer(f"new {number}", 60)) for number in range(20, 40)]
            assert (
                await other.timers.create_batch(decode(b'{"timers":[%s]}' % b",".join(batch), CreateTimers))
            ).created
            for number in range(20):
                assert await shard_of(instance, f"old {number}") in OLD
                assert await shard_of(instance, f"new {number}") in range(OLD.stop, OLD.stop + 32)
            page = await other.timers.list(ListTimers(namespace="busy", limit=1000))
            assert len(page.timers) == 60
            await asyncio.sleep(100)
            [left] = (await ask(other)).earlier
            assert left.timers == 0
            assert left.kept_until is not None
        assert Counter(world.called) == Counter([f"old {n}" for n in range(20)] + [f"new {n}" for n in range(40)])

    simulate(main)


def test_the_later_of_two_creates_counts_also_at_an_instance_that_knows_nothing_of_new_shards_yet() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await make(instance)
            await asyncio.sleep(5)
            resharding = asyncio.create_task(reshard(instance))
            await asyncio.sleep(0.01)
            for at in range(40):
                name = f"{at / 10}"
                await instance.timers.create(a_timer(name, 600))
                await other.timers.create(a_timer(name, 60))
                await asyncio.sleep(0.1)
            await resharding
            await asyncio.sleep(100)
            assert len(set(world.called)) == 40
            await asyncio.sleep(1000)
        assert set(Counter(world.called).values()) == {1}

    simulate(main)


def test_a_timer_of_the_earlier_shards_is_found_changed_replaced_and_deleted_there() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await make(instance)
            for name in ("changed", "replaced", "deleted", "run"):
                await instance.timers.create(a_timer(name, 600))
            await reshard(instance)
            assert (await other.timers.get(ref("changed"))).timer_id == "changed"
            await other.timers.update(UpdateTimer(namespace="busy", timer_id="changed", delay_seconds=1))
            replaced = await other.timers.create(a_timer("replaced", 1))
            assert replaced.generation == 2
            assert await shard_of(other, "replaced") in OLD
            await other.timers.run_now(ref("run"))
            await other.timers.delete(ref("deleted"))
            with pytest.raises(NotFound):
                await other.timers.get(ref("deleted"))
            await asyncio.sleep(10)
            await other.timers.create(a_timer("run", 1))
            assert await shard_of(other, "run") not in OLD
            await asyncio.sleep(1000)
            history = await instance.timers.history(ListHistory(namespace="busy", timer_id="run"))
            assert len(history.attempts) == 2
            assert history.attempts[0].started_at > history.attempts[1].started_at
        assert Counter(world.called) == Counter(["changed", "replaced", "run", "run"])

    simulate(main)


@pytest.mark.parametrize("seed", range(10))
def test_of_creates_of_one_id_at_several_instances_around_the_instant_one_is_called(seed: int) -> None:
    async def main(world: World) -> None:
        dice = random.Random(seed)
        world.store = store = SlowWrites(world.clock)
        async with world.running() as instance, world.running(2) as second, world.running(3) as third:
            await make(instance)
            resharding = asyncio.create_task(reshard(instance))

            async def create(number: int) -> None:
                await asyncio.sleep(dice.uniform(0, 14))
                store.seconds = dice.choice([0, 0, 0.01, 0.5])
                await dice.choice([instance, second, third]).timers.create(a_timer(f"{number % 20}", 60))

            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(create(number))
            store.seconds = 0.0
            await resharding
            await asyncio.sleep(200)
        assert Counter(world.called) == Counter(map(str, range(20)))

    simulate(main)


@pytest.mark.parametrize("earlier_seconds", [10, 300])
@pytest.mark.parametrize("newer_seconds", [20, 200])
def test_what_a_frozen_program_writes_into_the_earlier_shards_is_called_instead_of_or_replaced_by_the_newer(
    earlier_seconds: float, newer_seconds: float
) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            before = await make(instance)
            await instance.timers.create(a_timer("twice", earlier_seconds + 100))
            key = before.key_of("twice")
            [frozen] = await world.store.get([key])
            assert frozen is not None
            await instance.timers.delete(ref("twice"))
            await reshard(instance)
            await instance.timers.create(a_timer("twice", newer_seconds))
            due_at = world.clock.now_ms() + round(earlier_seconds * 1000)
            [verdict] = await world.store.write([Put(replaced(frozen, due_at), 0)])
            assert verdict is Verdict.APPLIED
            assert instance.engine is not None
            instance.engine.wake(key.shard_id, due_at)
            await asyncio.sleep(1000)
        assert Counter(world.called) == Counter(["twice"])

    simulate(main)


def test_what_is_deleted_in_bulk_is_not_called_as_it_was_in_the_earlier_shards() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await make_double(world, instance, newer_seconds=30, older_seconds=60)
            view = await instance.timers.bulk_delete(BulkTimers(namespace="busy", labels={"color": "blue"}))
            assert view.changed == 1
            await asyncio.sleep(100)
        assert not world.called

    simulate(main)


class HeldStore(MemoryStore):
    """Rows of the earlier shards are held by somebody's transaction while `is_held` says so."""

    is_held = False

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        verdicts = []
        for change in changes:
            is_held = self.is_held and change.key.shard_id in OLD
            verdicts += [Verdict.UNAVAILABLE] if is_held else await super().write([change])
        return verdicts


async def delete_one(instance: Instance) -> None:
    await instance.timers.delete(ref("twice"))


async def delete_in_bulk(instance: Instance) -> None:
    await instance.timers.bulk_delete(BulkTimers(namespace="busy", labels={"color": "blue"}))


async def make_double(world: World, instance: Instance, *, newer_seconds: float, older_seconds: float) -> None:
    """The timer `twice` in the new shards, and one that a frozen program brought into the earlier ones."""
    before = await make(instance)
    await instance.timers.create(a_timer("twice", 100))
    [frozen] = await world.store.get([before.key_of("twice")])
    assert frozen is not None
    await instance.timers.delete(ref("twice"))
    await reshard(instance)
    await instance.timers.create(replace(a_timer("twice", newer_seconds), labels={"color": "blue"}))
    due_at = world.clock.now_ms() + round(older_seconds * 1000)
    assert await world.store.write([Put(replaced(frozen, due_at), 0)]) == [Verdict.APPLIED]
    assert instance.engine is not None
    instance.engine.wake(frozen.shard_id, due_at)


@pytest.mark.parametrize("delete", [delete_one, delete_in_bulk])
def test_a_delete_is_refused_while_the_timer_of_its_id_in_the_earlier_shards_cannot_be_removed(
    delete: Callable[[Instance], Awaitable[None]],
) -> None:
    async def main(world: World) -> None:
        world.store = store = HeldStore(world.clock)
        async with world.running() as instance:
            await make_double(world, instance, newer_seconds=600, older_seconds=300)
            store.is_held = True
            with pytest.raises(StoreUnavailable):
                await delete(instance)
            assert (await instance.timers.get(ref("twice"))).labels == {"color": "blue"}
            store.is_held = False
            await delete(instance)
            await asyncio.sleep(900)
        assert not world.called

    simulate(main)


class RestlessStore(MemoryStore):
    """A row of the earlier shards changes just before it is removed, as often as `changes` says."""

    changes = 0

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        rows = await self.get([change.key for change in changes if isinstance(change, Remove)])
        for row in rows:
            if row is not None and row.shard_id in OLD and self.changes:
                self.changes -= 1
                await super().write([Put(row, row.version)])
        return await super().write(changes)


@pytest.mark.parametrize("delete", [delete_one, delete_in_bulk])
def test_a_timer_in_the_earlier_shards_is_gone_after_a_delete_however_often_it_changes_meanwhile(
    delete: Callable[[Instance], Awaitable[None]],
) -> None:
    async def main(world: World) -> None:
        world.store = store = RestlessStore(world.clock)
        async with world.running() as instance:
            await make_double(world, instance, newer_seconds=100, older_seconds=50)
            store.changes = 3
            await delete(instance)
            assert store.changes == 0
            with pytest.raises(NotFound):
                await instance.timers.get(ref("twice"))
            await asyncio.sleep(200)
        assert not world.called

    simulate(main)


class BlindStore(MemoryStore):
    """What one instance sees of a store: everything, except for namespaces while `is_blind` says so."""

    is_blind = False

    async def scan_records(self, collection: str, **options: Any) -> Any:
        self._look(collection)
        return await super().scan_records(collection, **options)

    async def get_record(self, collection: str, key: str, **options: Any) -> Any:
        self._look(collection)
        return await super().get_record(collection, key, **options)

    def _look(self, collection: str) -> None:
        if self.is_blind and collection == "namespace":
            raise StoreUnavailable("That part of the database does not answer")


@pytest.mark.parametrize("sees_after_seconds", [8, 60])
def test_nobody_calls_a_timer_by_what_it_knew_of_the_shards_long_ago(sees_after_seconds: float) -> None:
    async def main(world: World) -> None:
        blind = BlindStore(world.clock)
        world.store = store = SlowWrites(world.clock)
        vars(blind).update(vars(store))
        async with world.running(2, store=blind) as owner:
            before = await make(owner)
            await asyncio.sleep(3)
            await owner.timers.create(a_timer("alone", 15))
            await owner.timers.create(a_timer("twice", 100))
            [frozen] = await store.get([before.key_of("twice")])
            assert frozen is not None
            await owner.timers.delete(ref("twice"))
            elsewhere = NamespaceService(
                records=store, clock=world.clock, randomness=random.Random(1), created=lambda: None
            )
            blind.is_blind = True
            reshards = NamespaceReshard(store=store, namespaces=elsewhere, clock=world.clock)
            while not (await reshards.step(ReshardNamespace(name="busy", shard_count=32))).active:
                pass
            namespace = await elsewhere.find("busy")
            due_at = world.clock.now_ms() + 5_000
            newer = namespace.key_of("twice")
            assert await store.write(
                [
                    Put(replace(frozen, shard_id=newer.shard_id, uuid=newer.uuid, due_at=due_at + 200_000), 0),
                    Put(replaced(frozen, due_at), 0),
                ]
            ) == [Verdict.APPLIED, Verdict.APPLIED]
            assert owner.engine is not None
            owner.engine.wake(frozen.shard_id, due_at)
            await asyncio.sleep(sees_after_seconds)
            assert world.called == []
            blind.is_blind = False
            await asyncio.sleep(20)
            assert world.called == ["alone"]
            await asyncio.sleep(400)
        assert world.called == ["alone", "twice"]

    simulate(main)


def replaced(timer: Timer, due_at: int) -> Timer:
    return replace(timer, due_at=due_at, version=77)


def test_a_create_that_was_decided_before_and_lands_long_after_the_instant_is_not_called_twice() -> None:
    async def main(world: World) -> None:
        slow = SlowWrites(world.clock)
        vars(slow).update(vars(world.store))
        async with world.running() as instance, world.running(2, store=slow) as other:
            await make(instance)
            await asyncio.sleep(5)
            slow.seconds = 30.0
            late = asyncio.create_task(other.timers.create(a_timer("twice", 60)))
            await asyncio.sleep(0.1)
            await reshard(instance)
            await instance.timers.create(a_timer("twice", 60))
            await late
            slow.seconds = 0.0
            await asyncio.sleep(300)
        assert Counter(world.called) == Counter(["twice"])

    simulate(main)


@pytest.mark.parametrize("seed", range(4))
def test_of_two_timers_of_one_id_that_are_due_together_one_is_called_however_slow_the_store_is(seed: int) -> None:
    async def main(world: World) -> None:
        world.store = store = SlowStore(world.clock)
        store.dice = random.Random(seed)
        ids = [str(number) for number in range(40)]
        async with world.running() as instance, world.running(2):
            before = await make(instance)
            late: list[Timer] = []
            for id in ids:
                await instance.timers.create(a_timer(id, 100))
                late += [row for row in await store.get([before.key_of(id)]) if row is not None]
                await instance.timers.delete(ref(id))
            await reshard(instance)
            due_at = world.clock.now_ms() + 20_000
            for id in ids:
                await instance.timers.create(
                    CreateTimer(namespace="busy", timer_id=id, execute_at=to_instant(due_at), callback_url="handler:h")
                )
            assert set(await store.write([Put(replaced(row, due_at), 0) for row in late])) == {Verdict.APPLIED}
            store.is_slow = True
            await asyncio.sleep(300)
        assert Counter(world.called) == Counter(ids)

    simulate(main)


def test_only_more_shards_than_before_are_given_one_step_at_a_time_and_within_the_limit() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await make(instance)
            with pytest.raises(InvalidInput, match="more shards than the 4"):
                await ask(instance, 2)
            assert not (await ask(instance, 32)).active
            with pytest.raises(Conflict, match="about to get 32 shards"):
                await ask(instance, 64)
            assert (await reshard(instance, 32)).active
            await instance.timers.create(a_timer("in the second", 3000))
            view = await reshard(instance, 64)
            assert [one.shard_count for one in view.earlier] == [32, 4]
            await instance.timers.create(a_timer("in the third", 3000))
            assert (await instance.timers.get(ref("in the second"))).timer_id == "in the second"
            await reshard(instance, 128)
            with pytest.raises(Conflict, match="3 earlier ranges"):
                await ask(instance, 256)
            with pytest.raises(Conflict, match="at most 16384 shards in all"):
                await instance.reshard_namespace(ReshardNamespace(name="default", shard_count=16_200))
            await asyncio.sleep(4000)
            while not (await instance.delete_namespace(DeleteNamespace(name="busy", force=True))).deleted:
                pass
        assert Counter(world.called) == Counter(["in the second", "in the third"])

    simulate(main)


def test_two_who_ask_for_the_same_shards_get_them_once_and_do_not_get_in_each_others_way() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await make(instance)
            views = await asyncio.gather(reshard(instance), reshard(other), reshard(instance))
            assert {(view.first_shard, view.shard_count) for view in views} == {(OLD.stop, 32)}
            made = await instance.namespaces.create(CreateNamespace(name="next"))
            assert made.first_shard <= OLD.stop + 2 * 32  # two instances may both have taken some

    simulate(main)


def test_shards_without_timers_are_kept_until_their_history_is_over_and_removed_with_what_is_left_of_it() -> None:
    """History is kept by whole days."""

    async def main(world: World) -> None:
        namespaces = NamespaceService(
            records=world.store, clock=world.clock, randomness=random.Random(1), created=lambda: None
        )
        reshards = NamespaceReshard(store=world.store, namespaces=namespaces, clock=world.clock)
        await namespaces.open()
        await namespaces.create(CreateNamespace(name="busy", shard_count=len(OLD)))
        keys = [(await namespaces.find("busy")).key_of(name) for name in "abcdefgh"]
        await world.store.claim_shards([Shard(shard_id, 0, "me") for shard_id in OLD])
        await asyncio.sleep((DAY_MS - world.clock.now_ms() % DAY_MS) / 1000 + 10 * 3600)
        ended = attempt(started_at=world.clock.now_ms())
        await world.store.finish([Finish(key, 1, None, ended) for key in keys])

        async def step() -> ReshardView:
            return await reshards.step(ReshardNamespace(name="busy", shard_count=32))

        async def kept() -> int:
            return sum([len(await world.store.history(key)) for key in keys])

        while not (view := await step()).active:
            pass
        assert len(view.earlier) == 1
        await asyncio.sleep(7.5 * 86_400)
        assert len((await step()).earlier) == 1
        assert await kept() == len(keys)
        await asyncio.sleep(0.1 * 86_400)
        assert (await step()).earlier == ()
        assert await kept() == 0
        assert (await namespaces.find("busy")).shards == range(OLD.stop, OLD.stop + 32)

    simulate(main)


def test_a_reshard_that_is_killed_anywhere_is_completed_by_a_repeat() -> None:
    async def attempt(loop: SimulatedLoop, lives: int) -> bool:
        clock = SimulatedClock(loop)
        store = Mortal(clock)

        def services() -> tuple[NamespaceService, NamespaceReshard]:
            namespaces = NamespaceService(records=store, clock=clock, randomness=random.Random(1), created=lambda: None)
            return namespaces, NamespaceReshard(store=store, namespaces=namespaces, clock=clock)

        async def to_the_end(reshards: NamespaceReshard) -> None:
            while not (await reshards.step(ReshardNamespace(name="busy", shard_count=32))).active:
                pass

        namespaces, reshards = services()
        await namespaces.open()
        await namespaces.create(CreateNamespace(name="busy", shard_count=len(OLD)))
        store.lives = lives
        killed = False
        try:
            await to_the_end(reshards)
        except Killed:
            killed = True
        store.lives = float("inf")
        namespaces, reshards = services()
        await namespaces.open()
        await to_the_end(reshards)
        namespace = await namespaces.find("busy")
        assert namespace.shard_count == 32
        assert [one.shards for one in namespace.earlier] == [OLD]
        assert namespace.since is not None
        assert namespace.since <= clock.now_ms()
        return killed

    async def main(loop: SimulatedLoop) -> None:
        lives = 1
        while await attempt(loop, lives):
            lives += 1
        assert lives > 6

    run_simulated(main)
