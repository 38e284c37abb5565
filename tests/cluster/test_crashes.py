"""Three servers on one store, which are killed, frozen, cut off and restarted under a random load, as is the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.model import Shard
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import attempt, create, timer
from mainspring.testing.torture.figures import Figures
from mainspring.testing.torture.run import Torture, torture
from tests.cluster.stale_writes.audit import Write, takeovers
from tests.cluster.stale_writes.census import auditing, count_stale_writes
from tests.servers.fixtures import SHARED_STORES
from tests.servers.server import Server


def violations(figures: Figures) -> str:
    return "\n".join(str(violation)[:300] for violation in figures.violations[:20])


@pytest.mark.slow
async def test_promises_survive_kills_freezes_and_stops_on_one_file(tmp_path: Path) -> None:
    store_url = f"sqlite:///{tmp_path}/shared.db"
    figures = await torture(tmp_path, Torture(store_url=store_url, seed=7, seconds=20, destinations=100))
    assert not figures.violations, violations(figures)
    assert figures.acknowledged > 100, "the run did not do enough to mean anything"


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED_STORES[1:])
async def test_promises_survive_kills_freezes_cuts_and_restarts_of_the_database_without_a_stale_write(
    tmp_path: Path, name: str, start_server: Callable[[str], Server]
) -> None:
    server = start_server(name)

    def restart() -> None:
        server.kill()
        server.start()

    store_url = server.fresh()
    wanted = Torture(store_url=store_url, seed=7, seconds=20, destinations=100, restart_database=restart)
    async with count_stale_writes(store_url, wanted.servers) as counting:
        figures = await torture(tmp_path, replace(wanted, server_urls=counting.urls))
        assert not figures.violations, violations(figures)
        assert figures.acknowledged > 100, "the run did not do enough to mean anything"
        assert await counting.stale() == 0
        assert min((await counting.kinds()).values()) > 50
        assert await counting.takeovers() > 0


@pytest.mark.slow
async def test_stops_of_one_server_after_the_other_repeat_nothing_that_was_accepted(
    tmp_path: Path, store_url: str
) -> None:
    """A server that has the time to finish what it began leaves no repeat to others."""
    wanted = Torture(
        store_url=store_url,
        seed=8,
        seconds=10,
        destinations=40,
        blows={"stop": 1},
        is_armed=False,
        settings={"drain_seconds": "10"},
    )
    figures = await torture(tmp_path, wanted)
    assert not figures.violations, violations(figures)
    assert figures.blows["stop"] > 1
    assert figures.duplicates == 0


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
