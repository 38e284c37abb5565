"""Bugs of fetches, each a patch of one method: the search has to find them, each by its own rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from mainspring import crashpoint
from mainspring.fetches import ledger
from mainspring.fetches.carrier import FetchCarrier
from mainspring.fetches.executor import Executor
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import FETCHES, Fetch, decode, encode, settled
from mainspring.fetches.rows import new_row
from mainspring.kernel.carrier import Ending
from mainspring.model import Result, Timer
from mainspring.store import Put, first_version


class Planted(NamedTuple):
    """Where it is, the rule that finds it, and the first seed from 0 on that does."""

    where: str
    rule: str
    seed: int
    plant: Callable[[], AbstractContextManager[Any]]


def ignoring_the_mark() -> AbstractContextManager[Any]:
    """Whoever finds a fetch running by this executor makes the call, although it was begun before."""

    async def take(self: Executor, req_id: str) -> Fetch | None:
        if self.room <= 0:
            return await self._ledger.find(req_id)
        fetch = await self._start(req_id, f"{self._random.getrandbits(64):016x}")
        if fetch is not None and fetch.state == "running":
            crashpoint.reach(crashpoint.FETCH_DISPATCHED)
            self._run(fetch)
        return fetch

    return patch.object(Executor, "take", take)


def overwriting_the_end() -> AbstractContextManager[Any]:
    """The last end stays, and not the first."""

    async def settle(
        self: Ledger, of: Fetch, outcome: Outcome, *, by_executor: bool, offers: bool = False
    ) -> tuple[Fetch | None, bool]:
        def overwrite(fetch: Fetch) -> Fetch:
            return settled(fetch, outcome, offers=offers, retention_ms=self._retention_ms)

        fetch, _ = await self._change(of.req_id, overwrite, created_at=of.created_at)
        return fetch, True

    return patch.object(Ledger, "settle", settle)


def dropping_an_untaken_result() -> AbstractContextManager[Any]:
    """A result that was offered once, in vain, is not offered again."""
    carry = FetchCarrier.carry

    async def forgetful(self: FetchCarrier, timer: Timer) -> Ending:
        ending = await carry(self, timer)
        fetch = await self._ledger.find(timer.timer_id)
        if fetch is not None and fetch.delivery.state == "waiting" and fetch.delivery.attempts > 0:
            return Ending(outcome=Result.SUCCEEDED, next="done", started_at=self._clock.now_ms(), kept=False)
        return ending

    return patch.object(FetchCarrier, "carry", forgetful)


def leaving_no_row() -> AbstractContextManager[Any]:
    """A reqId that is on record is answered with what is there, whether or not a crash left it without a row."""

    async def add(self: Ledger, fetch: Fetch) -> Fetch:
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

    return patch.object(Ledger, "add", add)


def ignoring_a_stale_row() -> AbstractContextManager[Any]:
    """The row of a new fetch is not written while that of its expired namesake is still there."""

    async def give_row(self: Ledger, fetch: Fetch) -> None:
        row = new_row(fetch, await self._namespaces.system(ledger.NAMESPACE), version=first_version(self._random))
        await self._timers.write([Put(row, 0)])
        self._wake(row.shard_id, row.due_at)

    return patch.object(Ledger, "_give_row", give_row)


def forgetting_a_result_beyond_retention() -> AbstractContextManager[Any]:
    """A fetch expires while its result is still offered."""

    def short(fetch: Fetch, outcome: Outcome, *, offers: bool, retention_ms: int) -> Fetch:
        ended = settled(fetch, outcome, offers=offers, retention_ms=retention_ms)
        return replace(ended, expires_at=outcome.finished_at + retention_ms)

    return patch.object(ledger, "settled", short)


PLANTED: Final = (
    Planted("executor.take: ignores the mark", "P", 0, ignoring_the_mark),
    Planted("ledger.settle: overwrites", "P", 0, overwriting_the_end),
    Planted("fetches/carrier.carry: drops an untaken result", "P", 0, dropping_an_untaken_result),
    Planted("fetches/ledger.add: crash leaves no row", "Live", 0, leaving_no_row),
    Planted("fetches/ledger._give_row: ignores STALE", "Live", 0, ignoring_a_stale_row),
    Planted("fetches/record.settled: expires while it is offered", "P", 0, forgetting_a_result_beyond_retention),
)
