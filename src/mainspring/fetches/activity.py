"""What an instance remembers about fetches without asking the store: who waits for which, how long the last ones took,
and how many of those accepted here still wait for an executor. All of it is bounded, and none of it needs to be right
after a restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mainspring import telemetry
from mainspring.background import guarded
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import Fetch

DURATIONS: Final = 1000


class Activity:
    def __init__(self, tell_failure: Callable[[Fetch, Outcome], None]) -> None:
        """`tell_failure` is told about fetches that have ended here and not well."""
        self._tell_failure = tell_failure
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self._durations: deque[int] = deque(maxlen=DURATIONS)
        self._pending: dict[str, int] = {}
        """Accepted here and not started, with the shard of the row."""
        self._shards: Counter[int] = Counter()
        """How many of them are in each shard."""

    def noted(self, fetch: Fetch) -> None:
        """A fetch has changed its state, here."""
        self.not_pending(fetch.req_id)
        if fetch.outcome is None:
            return
        telemetry.fetches.add(fetch.state)
        if fetch.state in ("failed", "unknown"):
            with guarded("a failure got no line"):
                self._tell_failure(fetch, fetch.outcome)
        if fetch.started_at is not None:
            self._durations.append(fetch.outcome.duration_ms)
            telemetry.fetch_duration.observe(fetch.outcome.duration_ms)
        for ended in self._waiting.get(fetch.req_id, ()):
            ended.set()

    @contextmanager
    def awaiting(self, req_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the fetch ends here."""
        ended = asyncio.Event()
        waiting = self._waiting.setdefault(req_id, {})
        waiting[ended] = None
        try:
            yield ended
        finally:
            del waiting[ended]
            if not waiting:
                self._waiting.pop(req_id, None)

    def accepting(self, req_id: str, shard_id: int) -> None:
        """A fetch of a shard that is owned here is about to be stored."""
        if req_id not in self._pending:
            self._pending[req_id] = shard_id
            self._shards[shard_id] += 1

    def not_pending(self, req_id: str) -> None:
        shard_id = self._pending.pop(req_id, None)
        if shard_id is not None:
            self._shards[shard_id] -= 1

    def pending(self, owns: Callable[[int], bool]) -> int:
        """How many wait here, not counting those whose shards have gone to others, which start them."""
        gone = {shard_id for shard_id in self._shards if not owns(shard_id)}
        if gone:
            self._pending = {req_id: shard_id for req_id, shard_id in self._pending.items() if shard_id not in gone}
            self._shards = Counter(self._pending.values())
        return len(self._pending)

    def next_pending(self) -> str:
        """One of those that wait here, each in its turn; empty if none does."""
        req_id = next(iter(self._pending), "")
        if req_id:
            self._pending[req_id] = self._pending.pop(req_id)
        return req_id

    def percentile(self, part: float) -> float | None:
        """A percentile of the durations of the last fetches that have ended here."""
        if not self._durations:
            return None
        ordered = sorted(self._durations)
        return float(ordered[min(len(ordered) - 1, int(len(ordered) * part))])
