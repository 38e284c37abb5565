"""Rows that a database cannot hold: they are refused, alone, and when they are made rather than when they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.errors import TooLarge
from mainspring.model import LastOutcome, Result, Shard, State, Timer
from mainspring.store import Begin, Finish, Put, Remove, Store, Verdict
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

APPLIED, STALE, REFUSED = Verdict.APPLIED, Verdict.STALE, Verdict.REFUSED

LARGEST = {"cassandra": 4 * 1024 * 1024, "dynamodb": 400 * 1024, "mongodb": 16 * 1024 * 1024}
"""More than a row may take, by the limits of the servers that the tests start."""


class Limited(NamedTuple):
    store: Store
    too_large: int


@pytest.fixture(params=server_params("cassandra", "dynamodb", "mongodb"))
async def limited(request: pytest.FixtureRequest) -> AsyncIterator[Limited]:
    fleet: Fleet = request.getfixturevalue("fleet")
    server = await asyncio.to_thread(fleet.get, SERVERS[request.param])
    store = store_from_url(await asyncio.to_thread(server.fresh), clock=SystemClock())
    await store.open()
    yield Limited(store, LARGEST[request.param])
    await store.close()


def _of_size(name: str, size: int) -> Timer:
    return timer(name, payload=f'"{"x" * size}"')


async def _largest(limited: Limited) -> Timer:
    """The largest row that the store takes from a user, to the byte."""
    low, high = 0, limited.too_large
    while high - low > 1:
        middle = (low + high) // 2
        row = _of_size("largest", middle)
        [verdict] = await limited.store.write([Put(row, 0)])
        if verdict is APPLIED:
            await limited.store.write([Remove(row.key, 1)])
        low, high = (middle, high) if verdict is APPLIED else (low, middle)
    return _of_size("largest", low)


async def test_a_row_that_does_not_fit_is_refused_and_the_others_of_its_batch_are_written(limited: Limited) -> None:
    small, other = timer("small"), timer("other")
    large = _of_size("large", limited.too_large)
    assert await limited.store.write([Put(small, 0), Put(large, 0), Put(other, 0)]) == [APPLIED, REFUSED, APPLIED]
    assert await limited.store.get([small.key, large.key, other.key]) == [small, None, other]
    assert await limited.store.write([Put(replace(large, uuid=small.uuid), 1), Put(other, 1)]) == [REFUSED, APPLIED]


async def test_the_largest_row_that_is_accepted_can_be_tried_and_brought_to_its_end(limited: Limited) -> None:
    largest = await _largest(limited)
    await limited.store.claim_shards([Shard(0, 0, "me")])
    await create(limited.store, largest)
    assert await limited.store.begin([Begin(largest.key, 1, 1)]) == [APPLIED]
    outcome = LastOutcome(outcome=Result.FAILED, at=NOW, status=500, detail="x" * 3000)
    detail = replace(largest.detail, last_outcome=outcome, first_attempt_at=NOW)
    parked = replace(largest, state=State.PARKED, attempts=1, detail=detail)
    entry = replace(attempt(detail="x" * 3000), answer_head="x" * 500)
    assert await limited.store.finish([Finish(largest.key, 1, Put(parked, 2), entry)]) == [APPLIED]


async def test_an_ending_that_does_not_fit_is_refused_and_the_others_are_recorded(limited: Limited) -> None:
    rows = [timer(f"t{n}") for n in range(5)]
    await limited.store.claim_shards([Shard(0, 0, "me")])
    await create(limited.store, *rows)
    assert await limited.store.begin([Begin(row.key, 1, 1) for row in rows]) == [APPLIED] * 5
    payload = f'"{"x" * limited.too_large}"'
    finishes = [Finish(row.key, 1, Put(row, 2), attempt()) for row in rows]
    finishes[2] = Finish(rows[2].key, 1, Put(replace(rows[2], payload=payload), 2), attempt())
    assert await limited.store.finish(finishes) == [APPLIED, APPLIED, REFUSED, APPLIED, APPLIED]
    assert await limited.store.history(rows[2].key) == []
    assert await limited.store.finish([Finish(rows[2].key, 1, Remove(rows[2].key, 2), attempt())]) == [APPLIED]


async def test_a_text_that_is_none_is_refused_alone(limited: Limited) -> None:
    """Half of a surrogate pair, as the message of an exception may have it."""
    half, whole = timer("half"), timer("whole")
    await limited.store.claim_shards([Shard(0, 0, "me")])
    broken = replace(half, payload='"\ud800"')
    assert await limited.store.write([Put(broken, 0), Put(whole, 0)]) == [REFUSED, APPLIED]
    await create(limited.store, half)
    await limited.store.begin([Begin(row.key, 1, 1) for row in (half, whole)])
    finishes = [
        Finish(half.key, 1, Remove(half.key, 2), attempt(detail="\ud800")),
        Finish(whole.key, 1, Remove(whole.key, 2), attempt()),
    ]
    assert await limited.store.finish(finishes) == [REFUSED, APPLIED]


async def test_a_record_that_does_not_fit_is_too_large(limited: Limited) -> None:
    with pytest.raises(TooLarge, match="fits into"):
        await limited.store.put_record("c", "k", b"x" * (limited.too_large + 1), expect=0, now=NOW)
    assert await limited.store.get_record("c", "k", now=NOW) is None
