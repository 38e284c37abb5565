"""What has to happen sometimes: a search that never meets these has not looked where the bugs were.

Whoever runs histories writes `Reached` where one of them happens; a few are told from the commits themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from mainspring import crashpoint
from mainspring.testing.oracle.journal import AnyEvent, Commit, Reached

RECREATED_QUEUED: Final = "re-created while the old row was queued"
RECREATED_STARTING: Final = "re-created while the old row was starting"
RECREATED_IN_FLIGHT: Final = "re-created while the old call was in flight"
FULL_WINDOW_EMPTY_LANE: Final = "full window met an empty lane"
SECOND_REFILL: Final = "a lane was refilled a second time"
BEGIN_FENCED: Final = "begin was fenced"
BEGIN_STALE: Final = "begin was stale"
FINISH_SUPERSEDED: Final = "finish was superseded"
LEASE_LAPSED_YET_KEPT: Final = "lease lapsed here, yet was kept"
ONE_BAD_SHARD: Final = "one bad shard in a batch"
DRAIN_GIVEN_UP: Final = "drain was given up"
ALL_DEAD: Final = "all instances were dead"
CIRCUIT_CLOSED: Final = "a circuit closed again"
JOB_BESIDE_OLD_CLOCK: Final = "job re-created beside its old clock"
CATCHUP_MEETS_OVERLAP: Final = "catch-up met overlap"
DST: Final = "clocks changed for a job"
REQ_ID_AT_EXPIRY: Final = "reqId was asked for again at its expiry"
EXECUTOR_LOST: Final = "an executor was lost with calls under way"
HOLDER_OUTLIVES_LEASE: Final = "a holder outlived its lease"

LOSABLE: Final = ("begin", "finish", "claim", "renew", "record")


def answer_lost(verb: str) -> str:
    return f"{verb}: its answer was lost"


def landed_late(verb: str) -> str:
    return f"{verb}: it landed late"


def crashed_at(point: str) -> str:
    return f"crashed at {point}"


TIMERS: Final = (
    RECREATED_QUEUED,
    RECREATED_STARTING,
    RECREATED_IN_FLIGHT,
    FULL_WINDOW_EMPTY_LANE,
    SECOND_REFILL,
    BEGIN_FENCED,
    BEGIN_STALE,
    FINISH_SUPERSEDED,
    LEASE_LAPSED_YET_KEPT,
    ONE_BAD_SHARD,
    DRAIN_GIVEN_UP,
    ALL_DEAD,
    CIRCUIT_CLOSED,
    *map(answer_lost, LOSABLE),
    *map(landed_late, LOSABLE),
)
JOBS: Final = (JOB_BESIDE_OLD_CLOCK, CATCHUP_MEETS_OVERLAP, DST)
FETCHES: Final = (REQ_ID_AT_EXPIRY, EXECUTOR_LOST)
IDEMPOTENCY: Final = (HOLDER_OUTLIVES_LEASE,)
CRASHES: Final = tuple(map(crashed_at, crashpoint.NAMES))
SOMETIMES: Final = (*TIMERS, *JOBS, *FETCHES, *IDEMPOTENCY, *CRASHES)


def reached(journal: Iterable[AnyEvent]) -> set[str]:
    """What was reached in one history."""
    found: set[str] = set()
    in_flight: dict[str, set[str]] = {}
    """For each id, the deliveries that were begun and whose attempt has not ended."""
    for event in journal:
        if isinstance(event, Reached):
            found.add(event.what)
        elif isinstance(event, Commit):
            calls = in_flight.setdefault(event.id, set())
            if event.verb == "begin":
                calls.add(event.delivery_id)
            elif event.verb == "finish":
                calls.discard(event.delivery_id)
                if event.next == "superseded":
                    found.add(FINISH_SUPERSEDED)
            elif event.verb == "write" and event.after and calls - {event.delivery_id}:
                found.add(RECREATED_IN_FLIGHT)
    return found


class Counters:
    """In how many histories each was reached."""

    def __init__(self, expected: Iterable[str] = SOMETIMES) -> None:
        self._expected = tuple(expected)
        self.counted: Counter[str] = Counter()

    def add(self, journal: Iterable[AnyEvent]) -> None:
        self.counted.update(reached(journal))

    def missing(self) -> list[str]:
        """What was never reached, in the order of the list."""
        return [what for what in self._expected if not self.counted[what]]
