"""Where timers are, by their ids."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from mainspring.model import Namespace, ShardRange, TimerKey

PLAIN = Namespace(name="default", first_shard=32, shard_count=16, created_at=0, updated_at=0, secrets=())
GROUPED = replace(PLAIN, grouped=True)


def test_the_keys_of_a_namespace_that_was_made_before_there_were_groups_stay_the_same() -> None:
    assert PLAIN.key_of("order-1") == TimerKey(35, "22020ba88141da5347eccb37c3de18ae")


def test_ids_that_differ_in_their_last_characters_only_are_neighbours() -> None:
    uuids = sorted(GROUPED.key_of(f"order-{number}").uuid for number in range(1_000_000, 1_003_000))
    beginnings = Counter(uuid[:6] for uuid in uuids)
    assert sorted(beginnings.values()) == [1_000, 1_000, 1_000]


def test_ids_of_a_group_are_different_timers_in_all_shards() -> None:
    keys = {GROUPED.key_of(f"order-{number}") for number in range(1_000, 2_000)}
    assert len({key.uuid for key in keys}) == 1_000
    assert {key.shard_id for key in keys} == set(PLAIN.shards)


def test_the_shard_does_not_depend_on_groups() -> None:
    ids = ["", "a", "abc", "abcd", "order-17", "ü" * 50]
    assert [GROUPED.key_of(one).shard_id for one in ids] == [PLAIN.key_of(one).shard_id for one in ids]
    assert {len(GROUPED.key_of(one).uuid) for one in ids} == {32}


def test_an_earlier_range_keeps_its_own_keys() -> None:
    before = ShardRange(first_shard=32, shard_count=16)
    grown = replace(GROUPED, first_shard=64, shard_count=32, salt="\x0064", earlier=(before,))
    assert grown.keys_of("order-1")[1] == PLAIN.key_of("order-1")
    assert grown.new_key_of("order-1", 0) == PLAIN.key_of("order-1")
    regrown = replace(grown, earlier=(replace(before, grouped=True),))
    assert regrown.keys_of("order-1")[1] == GROUPED.key_of("order-1")
