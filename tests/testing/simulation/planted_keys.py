"""Defects of keys and locks that are planted to see whether the search finds them: each changes one method.

python -m tests.testing.simulation.planted_keys [name ...]        how many seeds it takes to find each
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any, Final

from mainspring.clock import Clock
from mainspring.idempotency.core import Processor
from mainspring.idempotency.holder import Claim
from mainspring.idempotency.terms import Flight
from mainspring.idempotency.uncertain import UncertainClaims
from mainspring.locks import FencedRecords, Held, Lock, LockRecord
from mainspring.model import Record
from tests.testing.simulation.planted_defect import Planted, tell


def _tokens_are_forgotten(_: Any) -> Any:
    def add(self: UncertainClaims, *_: object, **__: object) -> None:
        """Nobody remembers what may be on its way."""

    return add


def _anybody_keeps_it_out(good: Any) -> Any:
    async def withdraw(self: UncertainClaims, uncertain: Any) -> bool:
        await good(self, uncertain)
        return True

    return withdraw


def _cancelled_work_is_freed(good: Any) -> Any:
    async def failed(self: Processor[Any, Any], claim: Claim, error: BaseException, flight: Flight) -> None:
        if isinstance(error, CancelledError):
            await claim.release()
        else:
            await good(self, claim, error, flight)

    return failed


def _a_lost_claim_is_renewed(_: Any) -> Any:
    async def is_held(self: Claim, now: int) -> bool:
        record = await self._context.store.look(self.identity.address, now=now)
        if record is not None:
            self.version = record.version
        return True

    return is_held


def _half_the_lease_is_enough(good: Any) -> Any:
    def is_free(self: Lock, lease: LockRecord, version: int, now: int) -> bool:
        return good(self, lease, version, now + lease.lease_ms // 2)  # type: ignore[no-any-return]

    return is_free


def _a_late_answer_is_a_lock(good: Any) -> Any:
    async def take(self: Lock, *, expect: int, last_token: int) -> Held | None:
        clock = self._clock
        self._clock = _Still(clock)
        try:
            held: Held | None = await good(self, expect=expect, last_token=last_token)
        finally:
            self._clock = clock
        if held is not None:
            held._clock = clock
        return held

    return take


class _Still:
    """A clock on which no time passes."""

    def __init__(self, clock: Clock) -> None:
        self._stopped_at = clock.monotonic()
        self.now_ms = clock.now_ms
        self.align = clock.align

    def monotonic(self) -> float:
        return self._stopped_at


def _nobody_proves_the_lock(_: Any) -> Any:
    async def put_record(
        self: FencedRecords, collection: str, key: str, value: bytes, *, expect: int, first: int = 1, **_: Any
    ) -> Record | None:
        return await self._records.put_record(
            collection, key, value, expect=expect, now=self._clock.now_ms(), first=first
        )

    return put_record


PLANTED: Final = {
    "uncertain.add: forgets tokens": Planted("I", UncertainClaims, "add", _tokens_are_forgotten),
    "uncertain._withdraw: never looks again": Planted("I", UncertainClaims, "_withdraw", _anybody_keeps_it_out),
    "core._failed: frees when cancelled": Planted("I", Processor, "_failed", _cancelled_work_is_freed),
    "holder.is_held: takes anybody's claim": Planted("I", Claim, "is_held", _a_lost_claim_is_renewed),
    "locks._is_free: half the lease": Planted("I", Lock, "_is_free", _half_the_lease_is_enough),
    "locks._take: a late answer is a lock": Planted("I", Lock, "_take", _a_late_answer_is_a_lock),
    "locks.put_record: proves nothing": Planted("I", FencedRecords, "put_record", _nobody_proves_the_lock),
}


if __name__ == "__main__":
    tell(PLANTED, "idempotency")
