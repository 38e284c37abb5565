"""How late calls of a simulated cluster were, and destinations that are slow."""

from __future__ import annotations

from tests.support.engine_cluster import Cluster, done


def slow_by_name(seconds: float) -> object:
    return lambda timer: (seconds if "slow" in timer.detail.callback_url else 0.01, done())


def lateness(cluster: Cluster, prefix: str) -> list[int]:
    """How late each first call of these timers was."""
    first: dict[str, int] = {}
    for sending in cluster.ledger.sendings:
        if sending.timer.timer_id.startswith(prefix):
            first.setdefault(sending.timer.uuid, sending.at - sending.timer.detail.execute_at)
    return list(first.values())
