"""What the model of scale computes with is measured by commands that work. On tiny sizes: the figures mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.costs import costs
from bench.figures import Setting
from bench.placement import placement
from bench.scale_model import STEPS, needs


async def test_a_simulated_cluster_settles_after_instances_join_and_after_some_are_lost(tmp_path: Path) -> None:
    figures = {figure.what: figure.measured for figure in await placement(Setting(tmp_path, True, lambda _: None))}
    assert figures["20 join: time"] > 0
    assert figures["10 are lost: time"] > 4  # their leases have to run out
    assert figures["10 are lost: of them claim_shards"] > 0
    assert max(seconds for what, seconds in figures.items() if what.endswith("oldest lease")) < 6


def test_the_model_multiplies_what_was_measured() -> None:
    kinds = ("database", "round trips", "sent", "received")
    unit = {f"{step}, 100 together: {kind}": 10.0 for step in STEPS for kind in kinds}
    unit |= {f"a renewal, 99 others: {kind}": 1_000.0 for kind in kinds}
    unit |= {f"a look at an idle shard, of 1000: {kind}": 1.0 for kind in kinds}
    unit |= {f"a comparison of a shard, of 1000: {kind}": 0.0 for kind in kinds}
    unit |= {"create over HTTP, whole instance: client": 70.0, "call, whole instance: client": 80.0}
    figures = {figure.what: figure.measured for figure in needs("any", unit | {"a pending timer: room on disk": 500.0})}
    assert figures["1,000,000 timers/s: instances"] == 150
    assert figures["1,000,000 timers/s: database"] == 40
    assert figures["1,000,000,000 pending: room on disk"] == 500
    assert figures["100 idle instances, 16,384 shards: round trips"] == 50 * 1_000 + 16_384
    assert len(needs("any", unit)) == len(figures) - 1


@pytest.mark.slow
@pytest.mark.usefixtures("postgresql")
async def test_what_a_timer_costs_is_measured_on_sqlite_and_on_a_database(tmp_path: Path) -> None:
    figures = await costs(Setting(tmp_path, True, lambda _: None), names=["postgresql"])
    measured = {(figure.benchmark, figure.what): figure.measured for figure in figures}
    for step in ("create", "load", "begin", "finish"):
        assert measured["sqlite", f"{step}, 100 together: client"] > 0
        assert measured["postgresql", f"{step}, alone: round trips"] >= 1
        assert measured["postgresql", f"{step}, 100 together: round trips"] < 1
    assert (
        measured["postgresql", "a renewal, 99 others: received"] > measured["postgresql", "a renewal, alone: received"]
    )
    for database in ("sqlite", "postgresql"):
        assert measured[database, "a pending timer: room on disk"] > 100
