"""Three servers on one store, of which one after the other is killed, frozen or restarted under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.testing.torture.cluster import Blow, ClusterRun, latest_first_arrival_ms, run_cluster

LEASE_SECONDS = 3.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "on_time_ms"),
    [
        pytest.param(["kill"] * 4, (LEASE_SECONDS + 2) * 1000, id="kills"),
        pytest.param(["stop"] * 3, 3000, id="rolling restart"),
        pytest.param(["freeze"], (LEASE_SECONDS + 2) * 1000, id="freeze"),
    ],
)
async def test_promises_survive(tmp_path: Path, store_url: str, plan: list[Blow], on_time_ms: float) -> None:
    wanted = ClusterRun(
        store_url=store_url, plan=plan, seed=7, lease_seconds=LEASE_SECONDS, renew_seconds=1.0, pause_seconds=1.5
    )
    report, entries = await run_cluster(tmp_path, wanted)
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.arrivals > 100, "the run did not do enough to mean anything"
    assert latest_first_arrival_ms(entries) <= on_time_ms
