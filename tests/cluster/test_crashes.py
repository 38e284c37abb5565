"""Three servers on one store, of which one after the other is killed, frozen or restarted under load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mainspring.model import Shard
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores.sql.postgresql import postgresql_store
from mainspring.testing.timer_samples import attempt, create, timer
from mainspring.testing.torture.cluster import Blow, ClusterRun, latest_first_arrival_ms, run_cluster
from mainspring.testing.torture.journal import AnyEntry, Crash
from tests.cluster.stale_writes import StaleWrites
from tests.servers.postgresql import PostgreSQL

SERVERS = 3
LEASE_SECONDS = 3.0
TAKEOVER_MS = (LEASE_SECONDS + 2) * 1000


async def keep_promises(
    directory: Path, store_url: str, plan: list[Blow], *, on_time_ms: float, server_urls: Sequence[str] = ()
) -> list[AnyEntry]:
    wanted = ClusterRun(
        store_url=store_url,
        server_urls=server_urls,
        plan=plan,
        seed=7,
        servers=SERVERS,
        lease_seconds=LEASE_SECONDS,
        renew_seconds=1.0,
        pause_seconds=1.5,
    )
    report, entries = await run_cluster(directory, wanted)
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.arrivals > 100, "the run did not do enough to mean anything"
    assert latest_first_arrival_ms(entries) <= on_time_ms
    return entries


@pytest.mark.slow
async def test_promises_survive_kills(tmp_path: Path, store_url: str) -> None:
    await keep_promises(tmp_path, store_url, ["kill"] * 4, on_time_ms=TAKEOVER_MS)


@pytest.mark.slow
async def test_a_rolling_restart_of_all_servers_delays_little_and_repeats_nothing_that_was_accepted(
    tmp_path: Path, store_url: str
) -> None:
    entries = await keep_promises(tmp_path, store_url, ["stop"] * SERVERS, on_time_ms=3000)
    restarted = [entry.server for entry in entries if isinstance(entry, Crash)]
    assert restarted == list(range(SERVERS))


@pytest.mark.slow
async def test_promises_survive_a_freeze_and_the_frozen_owner_writes_nothing_more(
    tmp_path: Path, store_url: str
) -> None:
    if not store_url.startswith("postgresql:"):
        await keep_promises(tmp_path, store_url, ["freeze"], on_time_ms=TAKEOVER_MS)
        return
    audit = StaleWrites(store_url)
    server_urls = await audit.watch(SERVERS)
    try:
        await keep_promises(tmp_path, store_url, ["freeze"], on_time_ms=TAKEOVER_MS, server_urls=server_urls)
        assert await audit.found() == []
        counted = await audit.counted()
        assert min(counted["begin"], counted["outcome"]) > 100
        assert await audit.ask("SELECT DISTINCT writer FROM writes ORDER BY 1") == [(role,) for role in audit.roles]
        taken_over = "SELECT COUNT(*) FROM claims a JOIN claims b USING (shard_id) WHERE b.version = a.version + 1"
        assert await audit.ask(f"{taken_over} AND a.role <> b.role") != [(0,)]
    finally:
        await audit.close()


async def test_stale_writes_are_counted_where_somebody_makes_them(postgresql: PostgreSQL) -> None:
    """By hand, since the store makes none: it shows that the count above can fail."""
    url = postgresql.fresh()
    audit = StaleWrites(url)
    old, new = (postgresql_store(own_url) for own_url in await audit.watch(2))
    await old.open()
    await new.open()
    try:
        a, b = await create(old, timer("a"), timer("b"))
        await old.claim_shards([Shard(0, 0, "old")])
        assert await old.begin([Begin(a.key, 1, 1)]) == [Verdict.APPLIED]
        assert await old.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [Verdict.APPLIED]
        assert await new.claim_shards([Shard(0, 1, "new")]) == [Verdict.APPLIED]
        assert await audit.found() == []
        assert await audit.counted() == {"begin": 1, "outcome": 1}

        # The role that lost the shard borrows the fence of its successor, which the store cannot know.
        assert await old.begin([Begin(b.key, 2, 1)]) == [Verdict.APPLIED]
        assert await old.finish([Finish(b.key, 2, None, attempt())]) == [Verdict.APPLIED]
        stale = await audit.found()
        assert [(kind, writer, version, owner) for kind, _, writer, version, owner in stale] == [
            ("begin", audit.roles[0], 2, audit.roles[1]),
            ("outcome", audit.roles[0], 2, audit.roles[1]),
        ]
    finally:
        await old.close()
        await new.close()
        await audit.close()
