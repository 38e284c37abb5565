"""Three servers on one store, of which one after the other is killed, frozen or restarted under load."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.model import Shard
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import attempt, create, timer
from mainspring.testing.torture.cluster import Blow, ClusterRun, latest_first_arrival_ms, run_cluster
from mainspring.testing.torture.journal import AnyEntry, Crash
from tests.cluster.conftest import SHARED_STORES
from tests.cluster.stale_writes.audit import Audit, Write, takeovers
from tests.cluster.stale_writes.mongodb import MongoDBAudit
from tests.cluster.stale_writes.sql import SqlAudit

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


@asynccontextmanager
async def auditing(store_url: str) -> AsyncIterator[Audit]:
    audit = MongoDBAudit(store_url) if store_url.startswith("mongodb:") else SqlAudit(store_url)
    try:
        yield audit
    finally:
        await audit.close()


async def keep_promises_without_a_stale_write(directory: Path, store_url: str, plan: list[Blow]) -> None:
    if store_url.startswith("sqlite:"):  # whose writers cannot be told apart
        await keep_promises(directory, store_url, plan, on_time_ms=TAKEOVER_MS)
        return
    async with auditing(store_url) as audit:
        server_urls = await audit.watch(SERVERS)
        await keep_promises(directory, store_url, plan, on_time_ms=TAKEOVER_MS, server_urls=server_urls)
        writes = await audit.writes()
        assert [write for write in writes if write.is_stale] == []
        assert min(Counter(write.kind for write in writes).values()) > 100
        assert len({write.writer for write in writes}) >= SERVERS
        assert takeovers(await audit.claims()) > 0


@pytest.mark.slow
async def test_promises_survive_kills(tmp_path: Path, store_url: str) -> None:
    await keep_promises_without_a_stale_write(tmp_path, store_url, ["kill"] * 4)


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
    await keep_promises_without_a_stale_write(tmp_path, store_url, ["freeze"])


@pytest.mark.parametrize("store_url", SHARED_STORES[1:], indirect=True)
async def test_stale_writes_are_counted_where_somebody_makes_them(store_url: str) -> None:
    """By hand, since the store makes none: it shows that the count above can fail."""
    async with auditing(store_url) as audit:
        urls = await audit.watch(2)
        old, new = (store_from_url(url, clock=SystemClock()) for url in urls)
        await old.open()
        await new.open()
        try:
            a, b = await create(old, timer("a"), timer("b"))
            await old.claim_shards([Shard(0, 0, "old")])
            assert await old.begin([Begin(a.key, 1, 1)]) == [Verdict.APPLIED]
            assert await old.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [Verdict.APPLIED]
            assert await new.claim_shards([Shard(0, 1, "new")]) == [Verdict.APPLIED]
            kept = await audit.writes()
            assert [(write.kind, write.is_stale) for write in kept] == [("begin", False), ("outcome", False)]

            # The one that lost the shard borrows the fence of its successor, which the store cannot know.
            assert await old.begin([Begin(b.key, 2, 1)]) == [Verdict.APPLIED]
            assert await old.finish([Finish(b.key, 2, None, attempt())]) == [Verdict.APPLIED]
            first, second = await audit.claims()
            assert (await audit.writes())[2:] == [
                Write("begin", 0, first.owner, 2, second.owner, 2),
                Write("outcome", 0, first.owner, 2, second.owner),
            ]
            assert [write.is_stale for write in await audit.writes()] == [False, False, True, True]
            assert takeovers([first, second]) == 1
        finally:
            await old.close()
            await new.close()
