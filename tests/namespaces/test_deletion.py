"""A namespace is deleted whole, however often that is interrupted, and nothing appears in it afterwards."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest

from mainspring.clock import Clock
from mainspring.cluster.instance import Instance
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.model import Shard, State, Timer
from mainspring.namespaces.deletion import NOBODY, SHARDS_AT_ONCE, NamespaceDeletion
from mainspring.namespaces.messages import CreateNamespace, DeleteNamespace, DeletionView, ListNamespaces, NamespaceRef
from mainspring.namespaces.service import NamespaceService
from mainspring.store import START, Put, Remove, TimerFilter, Verdict
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from mainspring.testing.timer_samples import create, timer
from mainspring.timers.messages import (
    BatchView,
    BulkTimers,
    CreateTimers,
    ListHistory,
    ListTimers,
    TimerRef,
    TimerView,
    UpdateTimer,
)
from mainspring.wire.strict_json import decode
from tests.namespaces.world import Killed, Mortal, World, simulate, timer_in

a_timer = partial(timer_in, "trial")


async def delete(instance: Instance, name: str = "trial", **flags: bool) -> list[DeletionView]:
    """The answers to all steps."""
    views = [await instance.delete_namespace(DeleteNamespace(name=name, **flags))]
    while not views[-1].deleted:
        views.append(await instance.delete_namespace(DeleteNamespace(name=name, **flags)))
    return views


def test_an_empty_namespace_is_deleted_and_its_shards_are_given_to_nobody_else() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            first = await instance.namespaces.create(CreateNamespace(name="trial", shard_count=100))
            views = await delete(instance)
            assert views[0].closing_until is not None
            assert (views[-1].shards_done, views[-1].shard_count, views[-1].timers) == (100, 100, 0)
            with pytest.raises(NotFound):
                await instance.timers.create(a_timer("late", 1))
            again = await instance.namespaces.create(CreateNamespace(name="trial", shard_count=100))
            assert again.first_shard >= first.first_shard + 100
            await instance.timers.create(a_timer("new", 1))
            await asyncio.sleep(5)
        assert world.called == ["new"]

    simulate(main)


def test_a_namespace_that_is_created_again_shares_no_row_with_the_one_before() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            keys = []
            for _ in range(2):
                await instance.namespaces.create(CreateNamespace(name="trial"))
                keys.append((await instance.namespaces.find("trial")).key_of("a"))
                await delete(instance)
            assert keys[0].uuid != keys[1].uuid

    simulate(main)


def test_the_steps_of_a_deletion_leave_a_later_namespace_of_the_same_name_alone() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            meant = await instance.namespaces.create(CreateNamespace(name="trial"))
            asked = DeleteNamespace(name="trial", force=True, created_at=meant.created_at)
            while not (await instance.delete_namespace(asked)).deleted:
                pass
            with pytest.raises(NotFound):  # if the answer to the last step got lost
                await instance.delete_namespace(asked)
            await asyncio.sleep(1)
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await instance.timers.create(a_timer("new", 20))
            with pytest.raises(NotFound, match="was created at"):
                await instance.delete_namespace(asked)
            await asyncio.sleep(60)
        assert world.called == ["new"]

    simulate(main)


def test_a_timer_of_a_namespace_that_was_created_again_is_found_by_every_instance_at_once() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await delete(instance)
            with pytest.raises(NotFound, match="Namespace 'trial' does not exist"):
                await other.timers.list(ListTimers(namespace="trial"))
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await instance.timers.create(a_timer("new", 3600))
            assert (await other.timers.get(TimerRef(namespace="trial", timer_id="new"))).timer_id == "new"
            assert len((await other.timers.list(ListTimers(namespace="trial"))).timers) == 1

    simulate(main)


def test_the_default_namespace_is_not_deleted_nor_one_with_timers_unless_that_is_forced() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            with pytest.raises(Conflict, match="every start would create it again"):
                await delete(instance, "default", force=True)
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await instance.timers.create(a_timer("waits", 3600))
            await instance.timers.park(TimerRef(namespace="trial", timer_id="waits"))
            with pytest.raises(Conflict, match="has timers"):
                await delete(instance)
            await instance.timers.create(a_timer("still possible", 3600))

    simulate(main)


def test_who_does_not_force_a_deletion_does_not_go_on_with_a_forced_one() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await instance.timers.create(a_timer("waits", 3600))
            assert not (await instance.delete_namespace(DeleteNamespace(name="trial", force=True))).deleted
            for _ in range(10):
                with pytest.raises(Conflict, match="has timers"):
                    await instance.delete_namespace(DeleteNamespace(name="trial"))
                await asyncio.sleep(2)
            assert (await instance.delete_namespace(DeleteNamespace(name="trial", dry_run=True))).timers == 1
            assert (await delete(instance, force=True))[-1].timers == 1

    simulate(main)


def test_two_who_delete_the_same_namespace_do_not_get_in_each_others_way() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            meant = await instance.namespaces.create(CreateNamespace(name="trial", shard_count=100))
            asked = DeleteNamespace(name="trial", created_at=meant.created_at)

            async def delete_with(one: Instance) -> None:
                with suppress(NotFound):  # the other was quicker
                    while not (await one.delete_namespace(asked)).deleted:
                        pass

            await asyncio.gather(delete_with(instance), delete_with(other))

    simulate(main)


def test_a_dry_run_counts_and_changes_nothing() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            for number in range(3):
                await instance.timers.create(a_timer(str(number), 3600))
            await instance.timers.park(TimerRef(namespace="trial", timer_id="1"))
            view = await instance.delete_namespace(DeleteNamespace(name="trial", dry_run=True))
            assert (view.timers, view.parked, view.history, view.counts_are_minimum) == (3, 1, None, False)
            await instance.timers.create(a_timer("more", 3600))

    simulate(main)


def test_a_forced_deletion_takes_timers_and_history_with_it_and_calls_nothing_more() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            for number in range(30):
                await instance.timers.create(a_timer(f"early {number}", 1))
                await instance.timers.create(a_timer(f"late {number}", 60))
            await asyncio.sleep(10)
            namespace = await instance.namespaces.find("trial")
            views = await delete(other, force=True)
            assert (views[-1].timers, views[-1].history) == (30, 30)
            assert not (await world.store.list_timers(namespace.shards, TimerFilter(), after=START, limit=9)).timers
            assert not await world.store.history(namespace.key_of("early 1"))
            await asyncio.sleep(120)
            for one in (instance, other):
                with pytest.raises(NotFound):
                    await one.timers.history(ListHistory(namespace="trial", timer_id="early 1"))
        assert sorted(world.called) == sorted(f"early {number}" for number in range(30))

    simulate(main)


def test_no_instance_adds_timers_once_it_can_know_and_what_one_added_before_ends_a_deletion_without_force() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await asyncio.sleep(5)
            deleting = asyncio.create_task(delete(instance))
            await asyncio.sleep(0.01)
            with pytest.raises(Conflict, match="is being deleted"):
                await instance.timers.create(a_timer("refused", 1))
            await other.timers.create(a_timer("added", 30))  # it does not know yet
            await asyncio.sleep(5)
            with pytest.raises(Conflict, match="is being deleted"):
                await other.timers.create(a_timer("refused", 1))
            with pytest.raises(Conflict, match="has timers"):
                await deleting
            await asyncio.sleep(5)
            await other.timers.create(a_timer("possible again", 1))
            await asyncio.sleep(60)
        assert sorted(world.called) == ["added", "possible again"]

    simulate(main)


class LateCommit(MemoryStore):
    """A timer is committed just before the fence reaches a shard."""

    late: Timer | None = None
    at_shard = 0

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        if self.late is not None and any((one.shard_id, one.owner) == (self.at_shard, NOBODY) for one in claims):
            late, self.late = self.late, None
            assert await self.write([Put(late, 0)]) == [Verdict.APPLIED]
        return await super().claim_shards(claims)


@pytest.mark.parametrize("group", [0, 1])
def test_a_timer_that_is_committed_while_shards_are_emptied_ends_a_deletion_without_force_and_is_called(
    group: int,
) -> None:
    """In the group of shards that is about to be emptied, and in one that was empty before."""

    async def main(world: World) -> None:
        world.store = store = LateCommit(world.clock)
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial", shard_count=SHARDS_AT_ONCE + 1))
            namespace = await instance.namespaces.find("trial")
            ids = map(str, itertools.count())
            name = next(id for id in ids if namespace.key_of(id).shard_id < namespace.first_shard + SHARDS_AT_ONCE)
            await instance.timers.create(a_timer(name, 60))
            [late] = await store.get([namespace.key_of(name)])
            await instance.timers.delete(TimerRef(namespace="trial", timer_id=name))
            store.late, store.at_shard = late, namespace.first_shard + group * SHARDS_AT_ONCE
            with pytest.raises(Conflict, match="has timers: delete them first"):
                await delete(instance)
            assert store.late is None
            await asyncio.sleep(10)
            await instance.timers.create(a_timer("possible again", 10))
            await asyncio.sleep(90)
        assert sorted(world.called) == sorted([name, "possible again"])

    simulate(main)


class CutOff(MemoryStore):
    """Nothing of one instance arrives until its connection is back."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        super().__init__(clock)
        vars(self).update(vars(store))
        self.connected = asyncio.Event()
        self.connected.set()

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        await self.connected.wait()
        return await super().write(changes)

    async def scan_records(self, *args: Any, **options: Any) -> Any:
        await self.connected.wait()
        return await super().scan_records(*args, **options)


@pytest.mark.parametrize(
    ("is_back_after", "answered", "is_kept"),
    [(0.1, TimerView, True), (1, StoreUnavailable, True), (5, NotFound, False), (30, NotFound, False)],
)
@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_create_that_arrives_late_is_acknowledged_only_if_it_is_sure_to_be_seen_by_who_deletes_its_namespace(
    is_back_after: float, answered: type, is_kept: bool, in_a_batch: bool
) -> None:
    async def main(world: World) -> None:
        assert isinstance(world.store, MemoryStore)
        slow = CutOff(world.store, world.clock)
        async with world.running() as instance, world.running(2, store=slow) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            await other.namespaces.refresh()
            slow.connected.clear()
            deleting = asyncio.create_task(delete(instance))
            await asyncio.sleep(9.5)
            request = a_timer("late", 60)
            batch = decode(b'{"timers":[%s]}' % msgspec.json.encode(request), CreateTimers)
            creating = asyncio.create_task(
                other.timers.create_batch(batch) if in_a_batch else other.timers.create(request)
            )
            await asyncio.sleep(is_back_after)
            slow.connected.set()
            [answer] = await asyncio.gather(creating, return_exceptions=True)
            [end] = await asyncio.gather(deleting, return_exceptions=True)
            await asyncio.sleep(100)
        assert isinstance(end, Conflict if is_kept else list)
        if isinstance(answer, BatchView):
            assert answer.created == (answered is TimerView)
        else:
            assert isinstance(answer, answered)
        assert world.called == ["late"] * is_kept

    simulate(main)


def test_a_deletion_can_be_called_off_until_something_is_deleted() -> None:
    async def main(world: World) -> None:
        cancel = DeleteNamespace(name="trial", cancel=True)
        async with world.running() as instance, world.running(2) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            assert (await instance.delete_namespace(cancel)).cancelled
            await instance.timers.create(a_timer("kept", 60))
            for _ in range(5):
                view = await instance.delete_namespace(DeleteNamespace(name="trial", force=True))
            assert view.closing_until is not None
            assert (await other.delete_namespace(cancel)).cancelled
            assert not (await instance.namespaces.get(NamespaceRef(name="trial"))).deleting
            await asyncio.sleep(5)
            await instance.timers.create(a_timer("new", 10))
            await asyncio.sleep(100)
            assert sorted(world.called) == ["kept", "new"]
            await instance.timers.create(a_timer("lost", 60))
            await instance.delete_namespace(DeleteNamespace(name="trial", force=True))
            with pytest.raises(Conflict, match="is already being deleted with them: ask for `force` to go on, or"):
                await instance.delete_namespace(DeleteNamespace(name="trial"))
            with pytest.raises(InvalidInput, match="cancel alone"):
                await instance.delete_namespace(DeleteNamespace(name="trial", cancel=True, force=True))

    simulate(main)


def test_a_deletion_is_not_called_off_once_something_may_be_deleted() -> None:
    async def main(world: World) -> None:
        world.store = store = Mortal(world.clock)
        namespaces = NamespaceService(
            records=store, clock=world.clock, randomness=random.Random(1), created=lambda: None
        )
        deletion = NamespaceDeletion(store=store, namespaces=namespaces, clock=world.clock)
        await namespaces.create(CreateNamespace(name="trial", shard_count=4))
        namespace = await namespaces.find("trial")
        await create(store, timer("gone", shard_id=namespace.first_shard))
        asked = DeleteNamespace(name="trial", force=True)
        for _ in range(5):
            assert (await deletion.step(asked)).closing_until is not None
        store.lives = 4  # the record says that it has begun, and the shards are claimed
        with pytest.raises(Killed):
            await deletion.step(asked)
        with pytest.raises(Conflict, match="cannot be kept"):
            await deletion.step(DeleteNamespace(name="trial", cancel=True))
        store.lives = float("inf")
        assert (await deletion.step(asked)).deleted

    simulate(main)


def test_an_interrupted_deletion_is_shown_and_nothing_is_promised_until_it_is_repeated() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance, world.running(2) as other:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            assert not (await instance.namespaces.get(NamespaceRef(name="trial"))).deleting
            for name in ("parked", "due", "done with"):
                await instance.timers.create(a_timer(name, 30))
            await instance.timers.park(TimerRef(namespace="trial", timer_id="parked"))
            await instance.delete_namespace(DeleteNamespace(name="trial", force=True))
            await asyncio.sleep(60)
            for one in (instance, other):
                [shown] = [view for view in (await one.namespaces.list(ListNamespaces())).namespaces if view.deleting]
                assert shown.name == "trial"
                due, parked = (TimerRef(namespace="trial", timer_id=name) for name in ("due", "parked"))
                update = UpdateTimer(namespace="trial", timer_id="due", delay_seconds=1)
                for refused in (
                    one.timers.run_now(due),
                    one.timers.resume(parked),
                    one.timers.update(update),
                    one.timers.bulk_resume(BulkTimers(namespace="trial", all=True)),
                ):
                    with pytest.raises(Conflict, match="'trial' is being deleted"):
                        await refused
                assert (await one.timers.get(due)).generation == 1
            await other.timers.park(due)
            await other.timers.delete(TimerRef(namespace="trial", timer_id="done with"))
            assert (await delete(other, force=True))[-1].timers == 2
        assert world.called == []

    simulate(main)


class Deaf(MemoryStore):
    """A store whose records of namespaces cannot be listed while `is_cut` says so."""

    is_cut = False

    async def scan_records(self, collection: str, **options: Any) -> Any:
        if self.is_cut and collection == "namespace":
            raise StoreUnavailable("cut off")
        return await super().scan_records(collection, **options)


def test_an_instance_that_cannot_read_namespaces_adds_nothing_by_what_it_knew() -> None:
    async def main(world: World) -> None:
        world.store = store = Deaf(world.clock)
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            store.is_cut = True
            await asyncio.sleep(5)
            await instance.timers.create(a_timer("in time", 3600))
            await asyncio.sleep(6)
            with pytest.raises(StoreUnavailable):
                await instance.timers.create(a_timer("too late", 3600))
            store.is_cut = False
            await instance.timers.create(a_timer("again", 3600))

    simulate(main)


def test_an_owner_that_has_not_noticed_records_nothing_in_what_was_deleted() -> None:
    async def main(world: World) -> None:
        shared = world.store
        world.store = store = Deaf(world.clock)
        vars(store).update(vars(shared))
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            namespace = await instance.namespaces.find("trial")

            async def slow(timer: Timer) -> None:
                await asyncio.sleep(25)

            instance.timers_assembly.carrier.handlers["h"] = slow
            await instance.timers.create(a_timer("slow", 0))
            await asyncio.sleep(0.1)
            store.is_cut = True
            namespaces = NamespaceService(
                records=shared, clock=world.clock, randomness=random.Random(2), created=lambda: None
            )
            deletion = NamespaceDeletion(store=shared, namespaces=namespaces, clock=world.clock)
            while not (await deletion.step(DeleteNamespace(name="trial", force=True))).deleted:
                pass
            assert instance.calls_in_flight == 1
            await asyncio.sleep(60)
            assert instance.calls_in_flight == 0
            assert not await shared.history(namespace.key_of("slow"))

    simulate(main)


@pytest.mark.parametrize("force", [True, False])
def test_a_deletion_that_is_killed_anywhere_is_completed_by_a_repeat(force: bool) -> None:
    async def attempt(loop: SimulatedLoop, lives: int) -> bool:
        """Returns whether it was killed."""
        clock = SimulatedClock(loop)
        store = Mortal(clock)

        def services() -> tuple[NamespaceService, NamespaceDeletion]:
            namespaces = NamespaceService(records=store, clock=clock, randomness=random.Random(1), created=lambda: None)
            return namespaces, NamespaceDeletion(store=store, namespaces=namespaces, clock=clock)

        async def to_the_end(deletion: NamespaceDeletion) -> None:
            while not (await deletion.step(DeleteNamespace(name="trial", force=force))).deleted:
                pass

        namespaces, deletion = services()
        await namespaces.open()
        await namespaces.create(CreateNamespace(name="trial", shard_count=70))
        namespace = await namespaces.find("trial")
        if force:
            await create(store, timer("t", shard_id=namespace.first_shard + 66))
        store.lives = lives
        killed = False
        try:
            await to_the_end(deletion)
        except Killed:
            killed = True
        store.lives = float("inf")
        namespaces, deletion = services()
        await namespaces.open()
        if killed:
            with suppress(NotFound):  # it was complete, and nobody had been told
                await to_the_end(deletion)
        await namespaces.refresh()
        assert [one.name for one in namespaces.known] == ["default"]
        assert not (await store.list_timers(namespace.shards, TimerFilter(), after=START, limit=1)).timers
        return killed

    async def main(loop: SimulatedLoop) -> None:
        lives = 1
        while await attempt(loop, lives):
            lives += 1
        assert lives > 20

    run_simulated(main)


def test_a_call_in_flight_when_its_namespace_is_deleted_leaves_nothing_behind() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await instance.namespaces.create(CreateNamespace(name="trial"))
            namespace = await instance.namespaces.find("trial")
            begun = asyncio.Event()

            async def slow(timer: Timer) -> None:
                begun.set()
                await asyncio.sleep(25)

            instance.timers_assembly.carrier.handlers["h"] = slow
            await instance.timers.create(a_timer("slow", 0))
            await begun.wait()
            [row] = await world.store.get([namespace.key_of("slow")])
            assert row is not None
            assert row.state is State.RUNNING
            await delete(instance, force=True)
            await asyncio.sleep(60)
            assert not await world.store.history(row.key)
            assert await world.store.get([row.key]) == [None]

    simulate(main)
