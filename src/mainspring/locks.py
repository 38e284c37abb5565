"""A lock that programs on several machines share: one holder at a time, by a lease, with a fencing token.

    async with Lock(records, clock, "nightly").hold(wait_seconds=10) as held: ...

A lock is a record: collection `lock`, the name as key. Whoever holds it has written itself into it by compare-and-set,
until an instant of the store's time (*engine time*, so `clock` must be aligned with the store). Invariants:

- **One at a time.** A holder counts its lease from before the request that wrote it, by the monotonic clock, and
  relies on nine tenths of it. The others wait for all of it, unless they know that the holder is gone.
- **Tokens only grow.** Each holder of a name has a greater token than the one before: at least one more, and at least
  the present millisecond. So tokens grow even if the record is gone, unused for a week or lost by a cache.
- **Only the holder releases or renews.** Both are compare-and-set; what is no longer ours stays as it is.
- **What a successor has written stays.** `held.records` proves the lock *before* it compares and sets the record. If
  the holder is stopped between the two, and its successor writes, the version is no longer the expected one. This needs
  no clock. What is kept in other systems needs the token: they compare it, or are not protected.

What it does not do: queue (the first to ask after a release gets it), nest (a holder that asks again waits for itself).

When the store's clock jumps ahead, a successor may come early; the holder finds out at its next renewal, and what it
writes through `held.records` is refused. When it jumps back, those waiting take a lock whose record has not changed
for the length of its lease while they watched.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock, SystemClock, follow
from mainspring.errors import Conflict, InvalidInput, LockLost, LockTaken, StoreUnavailable
from mainspring.model import Record, to_json
from mainspring.store import RecordStore
from mainspring.stores import store_from_url
from mainspring.wire.arguments import check_number

LOCKS: Final = "lock"
TTL_SECONDS: Final = 90.0
LONGEST_TTL_SECONDS: Final = 86_400.0
LONGEST_NAME: Final = 255

_BELIEVED: Final = 0.9
"""The part of a lease that its holder counts on: the rest is for clocks that do not agree."""
_KEPT_MS: Final = 7 * 86_400_000
"""How long the record outlives its last lease: names that are used once do not fill the store."""
_WRITE_TRIES: Final = 3
_REMEMBERED: Final = 100
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0


class LockRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the record of a lock says. A released one has no owner and ended long ago."""

    owner: str
    nonce: str
    """Distinguishes this holding from every other, even when it is unknown whether its writes arrived."""
    token: int
    acquired_at: int
    lease_until: int
    lease_ms: int


class Lock:
    """One name, for one program. Any number of tasks may use it; they exclude each other like any others."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        name: str,
        *,
        ttl_seconds: float = TTL_SECONDS,
        owner: str = "",
        randomness: random.Random | None = None,
        is_gone: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """`ttl_seconds` is how long the lock outlives a holder that stops renewing it; `owner` is a name.

        `is_gone` may know that an owner has ended and that no part of it still acts as a holder: then nobody waits for
        its lease.
        """
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
            raise InvalidInput(f"Expected a lock name of 1 to {LONGEST_NAME} characters, got {name!r:.300}")
        check_number("ttl_seconds", ttl_seconds, least=0.1, most=LONGEST_TTL_SECONDS)
        self.name = name
        self.owner = owner or f"{socket.gethostname().split('.')[0][:40]}-{os.getpid()}"
        self._records = records
        self._clock = clock
        self._random = randomness or random.SystemRandom()
        self._lease_ms = round(ttl_seconds * 1000)
        self._is_gone = is_gone
        self._unheld: deque[str] = deque(maxlen=_REMEMBERED)
        """The nonces of holdings that were let go, and of tries whose outcome is not known: if one of them is found,
        nobody holds the lock by it."""
        self._watched: tuple[int, str] = (0, "")
        self._watched_since = 0.0

    @asynccontextmanager
    async def hold(self, *, wait_seconds: float = 0.0) -> AsyncIterator[Held]:
        """Hold the lock for the length of the block, renewing it every third of its lease.

        Raises `LockTaken` if it cannot be acquired within `wait_seconds`. If it is lost, the block is cancelled and
        `LockLost` raised: when the lease ends before a renewal succeeds, or as soon as a renewal finds another holder.
        A block that ended without noticing raises `LockLost` if somebody else held the lock before it ended.
        """
        check_number("wait_seconds", wait_seconds, least=0, most=math.inf)
        held = await self._wait(wait_seconds)
        try:
            async with _renewed(held):
                yield held
        finally:
            was_ours = await _let_go(held)
        if not was_ours:
            raise LockLost(f"Lock {self.name!r} was taken by somebody else before the block ended")

    async def try_acquire(self) -> Held | None:
        """Acquire the lock if it is free; None, and a line in the debug log, if not. It is not renewed automatically.

        After `StoreUnavailable` the lock may be taken without a holder: this `Lock` knows that, others wait it out.
        """
        now = self._clock.now_ms()
        record = await self._records.get_record(LOCKS, self.name, now=now)
        if record is None:
            return await self._take(expect=0, last_token=0)
        lease = _read(record)
        if self._is_free(lease, record.version, now) or (self._is_gone and await self._is_gone(lease.owner)):
            # By compare-and-set at the version that was read: a holder that has renewed it since keeps it.
            return await self._take(expect=record.version, last_token=lease.token)
        telemetry.debug("a lock is held by somebody else", lock=self.name, owner=lease.owner)
        return None

    def _is_free(self, lease: LockRecord, version: int, now: int) -> bool:
        if now >= lease.lease_until or lease.nonce in self._unheld:
            return True
        monotonic = self._clock.monotonic()
        if self._watched != (version, lease.nonce):
            self._watched = (version, lease.nonce)
            self._watched_since = monotonic
        # Nobody has renewed it for a whole lease: it was written by a clock that has been set back since.
        return monotonic - self._watched_since >= lease.lease_ms / 1000

    async def _take(self, *, expect: int, last_token: int) -> Held | None:
        before, now = self._clock.monotonic(), self._clock.now_ms()
        lease = LockRecord(
            owner=self.owner,
            nonce=f"{self._random.getrandbits(64):016x}",
            token=max(last_token + 1, now),
            acquired_at=now,
            lease_until=now + self._lease_ms,
            lease_ms=self._lease_ms,
        )
        try:
            written = await _put(self._records, self.name, lease, expect=expect, now=now)
        except (StoreUnavailable, asyncio.CancelledError):
            self._unheld.append(lease.nonce)
            raise
        if written is None:
            telemetry.debug("a lock was taken by somebody else", lock=self.name)
            return None
        held = Held(
            self._records, self._clock, self.name, lease, version=written.version, since=before, unheld=self._unheld
        )
        if not held.seconds_left:
            self._unheld.append(lease.nonce)
            telemetry.debug("a lock was acquired too slowly: its lease has ended", lock=self.name)
            return None
        return held

    async def _wait(self, wait_seconds: float) -> Held:
        deadline = self._clock.monotonic() + wait_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            held = await self.try_acquire()
            if held is not None:
                return held
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise LockTaken(
                    f"Lock {self.name!r} is held by somebody else, and was not released within {wait_seconds} s"
                )
            await asyncio.sleep(min(left, pause))
            pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)


class Held:
    """A lock that was acquired. It may have been lost since: use `check` and `confirm`."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        name: str,
        lease: LockRecord,
        *,
        version: int,
        since: float,
        unheld: deque[str],
    ) -> None:
        """`unheld` receives the nonce of this holding when it is released."""
        self.name = name
        self.token = lease.token
        """Greater than that of every earlier holder. Systems that work for the holder should refuse a lesser one."""
        self.records = FencedRecords(records, clock, self)
        """The records of the store; writes are refused when the lock is lost."""
        self._records = records
        self._clock = clock
        self._lease = lease
        self._version = version
        self._believed_until = since + self.ttl_seconds * _BELIEVED
        self._unheld = unheld
        self._turn = asyncio.Lock()

    @property
    def ttl_seconds(self) -> float:
        return self._lease.lease_ms / 1000

    @property
    def seconds_left(self) -> float:
        """How long the lock can be counted on without a renewal; 0 if it cannot."""
        return max(0.0, self._believed_until - self._clock.monotonic())

    def check(self) -> None:
        """Raise `LockLost` if the lease may have ended, by this machine's monotonic clock. Does not ask the store."""
        if not self.seconds_left:
            raise LockLost(f"The lease of lock {self.name!r} has ended")

    async def confirm(self) -> None:
        """Raise `LockLost` if the lease may have ended, or if the store names another holder."""
        self.check()
        if await self._find() is None:
            raise LockLost(f"Lock {self.name!r} is no longer held: somebody else took it")

    async def renew(self) -> None:
        """Start the lease afresh. Raises `LockLost` if it may have ended, or if somebody else holds the lock."""
        async with self._turn:
            self.check()
            before, now = self._clock.monotonic(), self._clock.now_ms()
            if not await self._write(replace(self._lease, lease_until=now + self._lease.lease_ms), now):
                self._believed_until = before
                raise LockLost(f"Lock {self.name!r} cannot be renewed: somebody else took it")
            self._believed_until = before + self.ttl_seconds * _BELIEVED

    async def release(self) -> bool:
        """Release the lock. False, and nothing is done, if somebody else has taken it.

        For locks from `try_acquire`: a `hold` block releases at its end, and is cancelled when the lock is lost.
        """
        async with self._turn:
            self._believed_until = self._clock.monotonic()
            self._unheld.append(self._lease.nonce)  # even if nobody can be told now
            return await self._write(replace(self._lease, owner="", lease_until=0), self._clock.now_ms())

    async def _write(self, lease: LockRecord, now: int) -> bool:
        """False if the record is not ours. An earlier write of ours, whose answer was lost, is written over."""
        for _ in range(_WRITE_TRIES):
            written = await _put(self._records, self.name, lease, expect=self._version, now=now)
            if written is not None:
                self._version = written.version
                return True
            found = await self._find()
            if found is None:
                return False
            self._version = found.version
        return False

    async def _find(self) -> Record | None:
        """The record of the lock, if this is its holder."""
        record = await self._records.get_record(LOCKS, self.name, now=self._clock.now_ms())
        return record if record is not None and _read(record).nonce == self._lease.nonce else None


class FencedRecords:
    """A `RecordStore` for the holder of a lock: it overwrites and removes nothing that a later holder wrote.

    That rests on `expect`, which the caller has read before. Nobody else held the lock when the record of the lock was
    read; so whatever a later holder writes, it writes afterwards, and the version changes. That also holds for a
    record that it removes and brings back, provided that it draws the `first` version: see `first_version`.
    """

    def __init__(self, records: RecordStore, clock: Clock, held: Held) -> None:
        self._records = records
        self._clock = clock
        self._held = held

    async def get_record(self, collection: str, key: str, *, now: int | None = None) -> Record | None:
        return await self._records.get_record(collection, key, now=self._time(now))

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int | None = None,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        """As in the contract; `LockLost` instead of None, too, if the reason may be a later holder."""
        await self._held.confirm()
        written = await self._records.put_record(
            collection, key, value, expect=expect, now=self._time(now), expires_at=expires_at, first=first
        )
        if written is None:
            await self._held.confirm()
        return written

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int | None = None) -> bool:
        """As in the contract; `LockLost` instead of False, too, if the reason may be a later holder."""
        await self._held.confirm()
        is_removed = await self._records.delete_record(collection, key, expect=expect, now=self._time(now))
        if not is_removed:
            await self._held.confirm()
        return is_removed

    async def scan_records(
        self, collection: str, *, now: int | None = None, after: str = "", limit: int = 1000
    ) -> list[Record]:
        return await self._records.scan_records(collection, now=self._time(now), after=after, limit=limit)

    def _time(self, now: int | None) -> int:
        return self._clock.now_ms() if now is None else now


@asynccontextmanager
async def _renewed(held: Held) -> AsyncIterator[None]:
    """Cancels the block when the lock is lost. Every renewal puts that moment off."""
    scope = asyncio.timeout(held.seconds_left)
    try:
        async with scope:
            renewing = asyncio.create_task(_keep_renewing(held, scope), name="mainspring-lock-renewal")
            try:
                yield
            finally:
                renewing.cancel()
                await asyncio.wait((renewing,))
                if not renewing.cancelled():
                    renewing.result()
    except TimeoutError:
        if not scope.expired():
            raise
        raise LockLost(f"The lease of lock {held.name!r} ended before the block did") from None


async def _keep_renewing(held: Held, scope: asyncio.Timeout) -> None:
    loop = asyncio.get_running_loop()
    pause = held.ttl_seconds / 3
    while True:
        await asyncio.sleep(pause)
        pause = held.ttl_seconds / 3
        try:
            await held.renew()
        except StoreUnavailable as error:
            telemetry.debug("a lock could not be renewed", lock=held.name, reason=error.detail)
            pause = held.ttl_seconds / 30  # it is tried until the lease ends
            continue
        except LockLost as error:
            telemetry.warning("a lock was lost", lock=held.name, token=held.token, reason=error.detail)
        if scope.expired():  # the block is being cancelled already
            return
        scope.reschedule(loop.time() + held.seconds_left)


async def _let_go(held: Held) -> bool:
    """Whether nobody else can have held the lock up to now, as far as one can know."""
    try:
        return await held.release()
    except StoreUnavailable as error:
        telemetry.warning(
            "a lock could not be released; it ends with its lease",
            lock=held.name,
            token=held.token,
            reason=error.detail,
        )
        return True


async def _put(records: RecordStore, name: str, lease: LockRecord, *, expect: int, now: int) -> Record | None:
    expires_at = max(now, lease.lease_until) + _KEPT_MS
    first = int(lease.nonce, 16) % 2**62 + 1  # drawn with the nonce: no other holding has it
    return await records.put_record(
        LOCKS, name, to_json(lease), expect=expect, now=now, expires_at=expires_at, first=first
    )


def _read(record: Record) -> LockRecord:
    try:
        return msgspec.json.decode(record.value, type=LockRecord)
    except ValueError:
        raise Conflict(f"The record {record.key!r} is not that of a lock") from None


@asynccontextmanager
async def open_lock(store: str, name: str, *, ttl_seconds: float = TTL_SECONDS, owner: str = "") -> AsyncIterator[Lock]:
    """A lock in the database named by a store URL, for programs that run no engine. Redis works, too."""
    clock = SystemClock()
    records = store_from_url(store, clock=clock)
    await records.open()
    try:
        await follow(clock, records.time, is_aligned=False)
        yield Lock(records, clock, name, ttl_seconds=ttl_seconds, owner=owner)
    finally:
        await records.close()
