"""PostgreSQL commits and its answer is lost: the store says that it does not know, and the engine looks again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import StoreUnavailable
from mainspring.model import Delivery, RetryPolicy, Shard, State
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores.sql.postgresql import postgresql_store
from mainspring.stores.sql.store import SqlStore
from mainspring.testing.target import Answer, TargetServer
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from mainspring.timers.messages import CreateTimer, ListHistory, ListTimers
from tests.faults.commit_relay import CommitRelay, commit_relay
from tests.servers.postgresql import PostgreSQL
from tests.support.patience import until

TIMERS = 60
FAILING = 10


@pytest.fixture
async def relay(postgresql: PostgreSQL) -> AsyncIterator[CommitRelay]:
    async with commit_relay(postgresql.port) as relay:
        yield relay


@pytest.fixture
def url(postgresql: PostgreSQL, relay: CommitRelay) -> str:
    """An empty database, behind the relay."""
    return postgresql.fresh().replace(f":{postgresql.port}/", f":{relay.port}/")


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    store = postgresql_store(url)
    await store.open()
    yield store
    await store.close()


async def test_every_write_whose_commit_is_not_answered_is_unavailable_and_done(
    store: SqlStore, relay: CommitRelay
) -> None:
    [a] = await create(store, timer("a"))

    relay.lose_next()
    with pytest.raises(StoreUnavailable):
        await store.claim_shards([Shard(0, 0, "me")])
    assert await store.shards([0]) == [Shard(0, 1, "me")]

    relay.lose_next()
    with pytest.raises(StoreUnavailable):
        await store.begin([Begin(a.key, 1, 1)])
    assert [(row.state, row.version, row.fence) for row in await store.get([a.key]) if row] == [(State.RUNNING, 2, 1)]
    assert await store.begin([Begin(a.key, 1, 1)]) == [Verdict.STALE]

    relay.lose_next()
    with pytest.raises(StoreUnavailable):
        await store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())])
    assert await store.get([a.key]) == [None]
    assert await store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [Verdict.STALE]
    assert await store.history(a.key, limit=9) == [attempt()]

    relay.lose_next()
    with pytest.raises(StoreUnavailable):
        await store.put_record("c", "k", b"1", expect=0, now=NOW)
    assert await store.put_record("c", "k", b"2", expect=1, now=NOW) is not None

    relay.lose_next()
    with pytest.raises(StoreUnavailable):
        await store.release_shards([Shard(0, 1, "me")])
    assert await store.shards([0]) == [Shard(0, 1, "")]
    assert relay.lost == 5


def request_for(n: int, target: TargetServer) -> CreateTimer:
    """Every third at most once; of the others, some are refused at first."""
    return CreateTimer(
        timer_id=f"t{n}",
        callback_url=f"{target.url}/{'flaky' if n % 3 == 1 else 'good'}",
        delay_seconds=2.0 * n / TIMERS,
        delivery=Delivery.AT_MOST_ONCE if n % 3 == 0 else Delivery.AT_LEAST_ONCE,
        retry_policy=RetryPolicy(max_attempts=30, initial_interval_seconds=0.1, on_exhausted="drop"),
    )


def arrivals_at(target: TargetServer) -> Counter[str]:
    return Counter(r.body.partition(b'"timerId":"')[2].partition(b'"')[0].decode() for r in target.requests)


async def test_an_engine_that_is_not_told_of_its_commits_loses_nothing_and_doubles_no_at_most_once(
    url: str, relay: CommitRelay, target: TargetServer
) -> None:
    target.script("/flaky", *[Answer(status=503)] * FAILING, Answer())
    chance = random.Random(7)
    async with Instance(Config(allow_loopback=True, store=url, renew_seconds=0.5)) as instance:
        relay.loses = lambda: chance.random() < 0.3
        for n in range(TIMERS):
            await instance.timers.create(request_for(n, target))

        async def is_empty() -> bool | None:
            return None if (await instance.timers.list(ListTimers(limit=1))).timers else True

        await until(is_empty, seconds=30, what="an end of every timer")
        relay.loses = lambda: False
        attempts = {n: (await instance.timers.history(ListHistory(timer_id=f"t{n}"))).attempts for n in range(TIMERS)}

    arrived = arrivals_at(target)
    assert arrived.keys() <= {f"t{n}" for n in range(TIMERS)}
    for n, noted in attempts.items():
        if n % 3 == 0:
            assert arrived[f"t{n}"] <= 1
            assert arrived[f"t{n}"] == 1 or {entry.outcome for entry in noted} == {"unknown"}
        else:
            assert arrived[f"t{n}"] >= 1
            assert "succeeded" in {entry.outcome for entry in noted}
    assert relay.lost >= 5, "the run did not lose enough to mean anything"
