"""Every instance places shards alike, whatever it has seen before, and few shards move."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainspring.kernel import placement as module
from mainspring.kernel.placement import Placement

SHARDS = list(range(512))


async def placed(instances: list[str], shards: list[int] = SHARDS) -> dict[int, str]:
    placement = Placement()
    await placement.follow(shards, instances)
    return placement.owners


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_has_followed_every_change_comes_to_what_a_newcomer_does(seed: int) -> None:
    dice = random.Random(seed)
    placement, names, shards = Placement(), [f"i{number}" for number in range(12)], SHARDS
    for _ in range(40):
        alive = dice.sample(names, dice.randint(0, len(names)))
        if dice.random() < 0.3:
            shards = list(range(dice.randint(1, 600)))
        await placement.follow(shards, alive)
        assert placement.owners == await placed(alive, shards)
        assert {placement.owner_of(shard) for shard in shards} <= {*alive, ""}


async def test_a_shard_moves_only_to_who_joins_or_from_who_leaves() -> None:
    names = [f"i{number}" for number in range(10)]
    nine, ten = await placed(names[:9]), await placed(names)
    moved = {shard: ten[shard] for shard in SHARDS if nine[shard] != ten[shard]}
    assert set(moved.values()) == {"i9"}
    assert len(SHARDS) / 20 < len(moved) < len(SHARDS) / 5


async def test_a_change_is_worked_out_without_a_look_at_all_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"i{number}" for number in range(50)]
    placement = Placement()
    await placement.follow(SHARDS, names[:49])
    asked: list[str] = []
    score = module._score

    def counted(shard_id: int, instance: str) -> bytes:
        asked.append(instance)
        return score(shard_id, instance)

    monkeypatch.setattr(module, "_score", counted)
    await placement.follow(SHARDS, names)
    assert asked == ["i49"] * len(SHARDS)
    asked.clear()
    await placement.follow(SHARDS, names[:49])
    assert len(asked) < 3 * len(SHARDS)


async def test_others_have_their_turn_while_many_shards_are_placed_and_nothing_moves_before_the_end() -> None:
    placement = Placement()
    await placement.follow(SHARDS, ["i0"])
    turns: list[set[str]] = []

    async def look() -> None:
        while True:
            turns.append(set(placement.owners.values()))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await placement.follow(SHARDS, [f"i{number}" for number in range(100)])
    looking.cancel()
    assert len(turns) >= 10
    assert turns[-1] == {"i0"}
