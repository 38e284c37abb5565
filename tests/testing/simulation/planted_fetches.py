"""Defects of fetches that are planted to see whether the search finds them.

python -m tests.testing.simulation.planted_fetches [name ...]        how many seeds it takes to find each
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from mainspring import crashpoint
from mainspring.fetches import registry, service
from mainspring.fetches.carrier import FetchCarrier
from mainspring.fetches.executor import Executor, _OwnedFetch
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.places import Places
from mainspring.fetches.record import FETCHES, NAMESPACE, Fetch, decode, encode, ended
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import new_row
from mainspring.kernel.carrier import Ending
from mainspring.kernel.lanes import LaneState
from mainspring.kernel.shares import Tier
from mainspring.model import Result, Timer
from mainspring.store import Put, first_version
from tests.testing.simulation.planted_defect import Planted, tell


def _the_mark_is_ignored(_: Any) -> Any:
    """Whoever finds a fetch running makes its call, although somebody else has begun it."""

    async def take(self: Executor, req_id: str, *, in_place: bool = False) -> Fetch | None:
        if not (in_place or self.places.free):
            return await self._registry.find(req_id)
        mark = f"{self._random.getrandbits(64):016x}"
        fetch = await self._start(req_id, mark, lambda _: True, in_place=in_place)
        if fetch is not None and fetch.state == "running":
            crashpoint.reach(crashpoint.FETCH_DISPATCHED)
            host = self._host_of(fetch.request.url)
            place = self.places.take(host, in_place=in_place)
            self._run(_OwnedFetch(fetch, host, place, self.places.tier_of(host), lambda: None))
        return fetch

    return take


def _the_last_end_stays(_: Any) -> Any:
    async def end(
        self: FetchRegistry, of: Fetch, outcome: Outcome, *, by_executor: bool, offer_ms: int = 0
    ) -> tuple[Fetch | None, bool]:
        def overwrite(fetch: Fetch) -> Fetch:
            return ended(fetch, outcome, offer_ms=offer_ms, retention_ms=self._retention_ms)

        fetch, _ = await self._change(of.req_id, overwrite, created_at=of.created_at)
        return fetch, True

    return end


def _an_untaken_result_is_dropped(good: Any) -> Any:
    """What was offered in vain is not offered again."""

    async def carry(self: FetchCarrier, timer: Timer) -> Ending:
        ending: Ending = await good(self, timer)
        fetch = await self._registry.find(timer.timer_id)
        if fetch is not None and fetch.delivery.state == "waiting" and fetch.delivery.attempts > 0:
            return Ending(outcome=Result.SUCCEEDED, next="done", started_at=self._clock.now_ms(), kept=False)
        return ending

    return carry


def _a_crash_leaves_no_row(_: Any) -> Any:
    """A reqId that is on record is answered with what is there, whether or not it has a row."""

    async def add(self: FetchRegistry, fetch: Fetch) -> Fetch:
        while True:
            now, first = self._clock.now_ms(), first_version(self._random)
            new = await self._records.put_record(FETCHES, fetch.req_id, encode(fetch), expect=0, now=now, first=first)
            if new is not None:
                break
            record = await self._records.get_record(FETCHES, fetch.req_id, now=now)
            if record is not None:
                return decode(record.value)
        crashpoint.reach(crashpoint.FETCH_RECORDED)
        await self._give_row(fetch)
        return fetch

    return add


def _a_stale_row_is_left(_: Any) -> Any:
    """The row of a new fetch is not written while that of its expired namesake is still there."""

    async def give_row(self: FetchRegistry, fetch: Fetch) -> None:
        namespace, now = await self._namespaces.system(NAMESPACE), self._clock.now_ms()
        row = new_row(fetch, namespace, version=first_version(self._random), now=now)
        await self._timers.write([Put(row, 0)])
        self._wake(row.shard_id, row.due_at)

    return give_row


def _it_expires_while_it_is_offered(good: Any) -> Any:
    def short(fetch: Fetch, outcome: Outcome, *, offer_ms: int, retention_ms: int) -> Fetch:
        final: Fetch = good(fetch, outcome, offer_ms=offer_ms, retention_ms=retention_ms)
        return replace(final, expires_at=outcome.finished_at + retention_ms)

    return short


def _another_request_is_accepted(_: Any) -> Any:
    """Under a reqId that is taken, as if it were a repeat."""

    def other_request(first: Fetch, repeat: Fetch) -> tuple[str, ...]:
        return ()

    return other_request


def _hosts_share_nothing(_: Any) -> Any:
    """A host takes whatever is free."""

    def room(self: Places, lane: LaneState, tier: Tier) -> int:
        return self.free

    return room


PLANTED: Final = {
    "executor.take: ignores the mark": Planted("P", Executor, "take", _the_mark_is_ignored),
    "registry.end: overwrites": Planted("P", FetchRegistry, "end", _the_last_end_stays),
    "carrier.carry: drops an untaken result": Planted("P", FetchCarrier, "carry", _an_untaken_result_is_dropped),
    "record.ended: expires while it is offered": Planted("P", registry, "ended", _it_expires_while_it_is_offered),
    "registry.add: a crash leaves no row": Planted("Live", FetchRegistry, "add", _a_crash_leaves_no_row),
    "service.other_request: finds none": Planted("P", service, "other_request", _another_request_is_accepted),
    "places._room: hosts share nothing": Planted("B", Places, "_room", _hosts_share_nothing),
}

STALE_ROW: Final = Planted("Live", FetchRegistry, "_give_row", _a_stale_row_is_left)
"""Too rare for two thousand histories: the test of it finds it."""


if __name__ == "__main__":
    tell(PLANTED, "fetches")
