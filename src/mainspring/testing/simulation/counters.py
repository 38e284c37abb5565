"""What has to happen sometimes: a search in which it never does is looking in the wrong place.

Whoever sees it happen tells the run, by these names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from mainspring import crashpoint

TIMERS: Final = (
    "re-created while queued",
    "re-created while starting",
    "re-created while in flight",
    "rows left in the store",
    "rows left for their bytes",
    "full window meets empty lane",
    "second refill",
    "begin stale",
    "begin fenced",
    "begin unavailable",
    "finish stale",
    "finish fenced",
    "finish unavailable",
    "finish superseded",
    "lease lapsed here, yet kept",
    *(f"{verb}: {what}" for verb in ("begin", "finish", "claim", "renew") for what in ("answer lost", "landed late")),
    "one bad shard in a batch",
    "drain given up",
    "all dead",
    "circuit closed",
    "wall clock stepped",
    *(f"crash point {name}" for name in crashpoint.NAMES),
)
FETCHES: Final = (
    "reqId asked again at its expiry",
    "executor lost with calls under way",
    "all dead",
    "drain given up",
    "wall clock stepped",
    *(f"{verb}: {what}" for verb in ("record", "write", "renew") for what in ("answer lost", "landed late")),
    *(f"crash point {name}" for name in crashpoint.FETCH_NAMES),
)
KEYS: Final = (
    "holder outlives lease",
    *(f"{verb}: {what}" for verb in ("claim", "lock") for what in ("answer lost", "landed late")),
    "unknown is resolved",
    "all dead",
    "wall clock stepped",
)
JOBS: Final = ("job re-created beside its old clock", "catch-up meets overlap", "DST", "wall clock stepped")
OF: Final = {
    "timers": TIMERS,
    "jobs": JOBS,
    "idempotency": KEYS,
    "fetches": FETCHES,
    "all": tuple(dict.fromkeys((*TIMERS, *JOBS, *KEYS, *FETCHES))),
}
SEEDS: Final = 1000
"""After this many seeds of a service everything should have happened."""


def enough(service: str) -> int:
    return SEEDS * (len(OF) - 1) if service == "all" else SEEDS


def unreached(reached: Iterable[str], service: str = "timers") -> list[str]:
    """What should happen in a thousand seeds, but has not."""
    seen = set(reached)
    return [name for name in OF[service] if name not in seen]


def total(runs: Iterable[Iterable[str]]) -> Counter[str]:
    """In how many runs each was reached."""
    return Counter(name for run in runs for name in set(run))
