"""What the oracle is told in addition to events: the world, and what is left of it at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mainspring.model import Namespace, Timer
from mainspring.testing.oracle import world as oracle
from mainspring.testing.oracle.journal import Entry, Row
from mainspring.testing.simulation.commits import mark_of, service_of
from mainspring.testing.simulation.plan import World
from mainspring.testing.simulation.receivers import host_of
from mainspring.testing.simulation.tables import Tables

LARGEST_ROW: Final = 400
"""The most that users have put into a row, in bytes."""


def oracle_world(world: World) -> oracle.World:
    return oracle.World(
        commits=True,
        lease_seconds=world.lease_seconds,
        idempotency_ttl_seconds=world.ttl_seconds,
        look_seconds=world.look_seconds,
        wire_ms=2 * world.wire,
        latency_ms=world.latency,
        call_timeout_ms=5000,
        window_limit=max(1, min(world.window_limit, world.window_bytes // LARGEST_ROW)),
        in_flight_limit=world.in_flight_limit,
        host_limit=world.host_limit,
        page_size=world.page_size,
        circuit_seconds=world.circuit_seconds,
        wakeups_lost=world.wakeups_lost > 0,
        fetch_retention_seconds=world.fetch_retention / 1000,
        hosts={
            host_of(number): oracle.Host(kind=known.kind, seconds=known.seconds, healed=known.healed)
            for number, known in enumerate(world.destinations)
            if known.kind != "fast"
        },
    )


def row_of(timer: Timer) -> Row:
    last = timer.detail.last_outcome
    return Row(
        id=timer.timer_id,
        delivery_id=timer.detail.delivery_id,
        generation=timer.generation,
        state=timer.state.value,
        attempts=timer.attempts,
        due_ms=timer.detail.execute_at,
        version=timer.version,
        delivery=timer.detail.delivery.value,
        mark=mark_of(timer.payload) if service_of(timer) == "timers" else "",
        host=timer.detail.callback_url.removeprefix("http://").removesuffix("/hook"),
        reason=last.detail if last is not None else "",
        shard=timer.shard_id,
    )


def entries_of(tables: Tables, namespace: Namespace, ids: Iterable[str]) -> Iterator[Entry]:
    """The history of these timers, oldest first."""
    for id in ids:
        attempts = [one for key in namespace.keys_of(id) for one in tables.history(key, limit=1_000_000)]
        for attempt in sorted(attempts, key=lambda one: (one.started_at, one.attempt)):
            yield Entry(
                id=id,
                delivery_id=attempt.delivery_id,
                attempt=attempt.attempt,
                generation=attempt.generation,
                outcome=attempt.outcome.value,
                next=attempt.next,
                started_ms=attempt.started_at,
                duration_ms=attempt.duration_ms,
                next_ms=attempt.next_at,
                status=attempt.status,
                detail=attempt.detail,
            )
