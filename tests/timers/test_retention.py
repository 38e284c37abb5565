"""History is kept for as long as its namespace says, and removed after that."""

from __future__ import annotations

import pytest

from mainspring.clock import SystemClock, wall_ms
from mainspring.cluster import instance as module
from mainspring.cluster.instance import Instance
from mainspring.namespaces.messages import CreateNamespace, UpdateNamespace
from mainspring.testing.target import TargetServer
from mainspring.timers.messages import ListHistory
from tests.timers.requests import timer, until

DAY_MS = 86_400_000


def pass_days(instance: Instance, days: int) -> None:
    """Let so many days have passed for what the instance decides by itself; engine and store go on as they were."""
    later = SystemClock()
    later.align(wall_ms() + days * DAY_MS)
    instance.clock = later


async def attempts(instance: Instance, namespace: str, timer_id: str) -> int:
    found = await instance.timers.history(ListHistory(namespace=namespace, timer_id=timer_id, limit=1000))
    return len(found.attempts)


async def fired(instance: Instance, target: TargetServer, namespace: str, timer_id: str) -> None:
    before = await attempts(instance, namespace, timer_id)
    await instance.timers.create(timer(timer_id, namespace=namespace, delaySeconds=0, callbackUrl=target.url + "/hook"))

    async def is_recorded() -> bool:
        return await attempts(instance, namespace, timer_id) > before

    await until(is_recorded)


async def test_each_namespace_keeps_its_history_for_its_own_time(instance: Instance, target: TargetServer) -> None:
    await instance.namespaces.create(CreateNamespace(name="short", shard_count=2, history_retention_days=1))
    await instance.namespaces.create(CreateNamespace(name="long", shard_count=2, history_retention_days=30))
    await instance.namespaces.update(UpdateNamespace(name="default", history_retention_days=7))
    names = ("short", "default", "long")
    for name in names:
        await fired(instance, target, name, "t")

    async def kept() -> list[int]:
        await instance._prune()
        return [await attempts(instance, name, "t") for name in names]

    assert await kept() == [1, 1, 1]
    pass_days(instance, 2)
    assert await kept() == [0, 1, 1]
    pass_days(instance, 9)
    assert await kept() == [0, 0, 1]
    pass_days(instance, 32)
    assert await kept() == [0, 0, 0]


async def test_a_shard_with_more_than_one_batch_is_pruned_to_the_end(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PRUNE_BATCH", 2)
    for _ in range(5):
        await fired(instance, target, "default", "t")
    pass_days(instance, 9)
    await instance._prune()
    assert await attempts(instance, "default", "t") == 0


async def test_history_is_removed_by_whole_days_and_a_day_is_looked_through_once(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def prune_history(shard_id: int, *, older_than: int, limit: int) -> int:
        asked.append(older_than)
        return 0

    monkeypatch.setattr(instance.store, "prune_history", prune_history)
    await instance._prune()
    shards = len(asked)
    assert shards > 0
    assert all(instant % DAY_MS == 0 for instant in asked)
    await instance._prune()
    assert len(asked) <= 2 * shards  # more than `shards` only if midnight has passed meanwhile
    pass_days(instance, 3)
    seen = len(asked)
    await instance._prune()
    assert len(asked) == seen + shards


async def test_shards_of_others_are_left_to_them(instance: Instance, target: TargetServer) -> None:
    await fired(instance, target, "default", "t")
    pass_days(instance, 9)
    instance.ownership.fences.clear()
    await instance._prune()
    assert await attempts(instance, "default", "t") == 1
