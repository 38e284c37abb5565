"""What the holder of a claim does with it: renew it while the work runs, record the outcome, or let go.

Every write is a compare-and-set on the version that the claim has, as far as its holder knows. After a write whose
outcome is unknown, or once the lease has passed, the record is looked at first: the token tells whose claim it is.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from msgspec.structs import replace

from mainspring import telemetry
from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.entries import (
    Entry,
    EntryState,
    Form,
    Header,
    Note,
    ResultKind,
    decoded,
    encoded,
    freed,
    is_live,
    write_note,
)
from mainspring.idempotency.errors import LostClaim, NotRecorded
from mainspring.idempotency.keys import Identity
from mainspring.idempotency.terms import Model, Settings
from mainspring.idempotency.uncertain import UncertainClaims
from mainspring.model import Record

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


class ClaimContext:
    """Where claims are made and kept: what all claims of a processor share."""

    def __init__(self, store: ClaimStore, model: Model, settings: Settings, *, kept_as: ResultKind = "json") -> None:
        self._kept_as = kept_as
        self.store = store
        self.model = model
        self.settings = settings
        self.uncertain = UncertainClaims(self)

    async def write(self, address: str, entry: Entry, *, expect: int, now: int) -> bool:
        """Write an entry that expires."""
        expires_at = now + self.settings.ttl_ms
        return await self.store.replace(address, encoded(entry), expect=expect, now=now, expires_at=expires_at)

    async def note(self, identity: Identity, now: int) -> None:
        """Make a key whose outcome is unknown findable. The record says so in any case: a note may fail."""
        note = Note(scope=self.settings.scope, key=identity.key, result=self._kept_as)
        try:
            await self.store.note(identity.address, write_note(note), now=now)
        except StoreUnavailable as error:
            telemetry.debug("an unknown key could not be noted", key=identity.key, detail=error.detail)


class Claim:
    """A claim that is held, at `version`. Used by the caller whose work runs and, in between, by its heartbeat."""

    __slots__ = ("_context", "header", "identity", "is_lost", "lease_ends_at", "version")

    def __init__(self, context: ClaimContext, identity: Identity, header: Header, version: int) -> None:
        self._context = context
        self.identity = identity
        self.header = header
        self.version = version
        self.is_lost = False
        self.lease_ends_at = self._lease_ends_at()
        """By the clock of waiting; at the latest."""

    def _lease_ends_at(self) -> float:
        return self._context.model.monotonic() + self._context.settings.lease_seconds

    def beating(self) -> AbstractAsyncContextManager[object]:
        """Renewed as long as the block lasts: three times per lease."""
        return self._context.model.beating(self.renew, self._context.settings.lease_seconds / 3)

    async def renew(self) -> bool:
        """Whether the claim is still held, as far as one can know."""
        store, ends_at = self._context.store, self._lease_ends_at()
        try:
            now = await store.time()
            header = replace(self.header, lease_until=now + self._context.settings.lease_ms)
            value = encoded(Entry(header))
            if await store.replace(self.identity.address, value, expect=self.version, now=now, expires_at=None):
                self.version += 1
                self.header = header
                self.lease_ends_at = ends_at
                return True
            self.is_lost = not await self.is_held(now)
        except StoreUnavailable:
            return True  # not known to be lost; the next write will tell
        return not self.is_lost

    async def is_held(self, now: int) -> bool:
        """Check whether the record is still this claim, and at which version."""
        record = await self._mine(now)
        if record is None:
            return False
        header = decoded(record).header
        if header.state is not EntryState.RUNNING:
            return False
        self.version, self.header = record.version, header
        return True

    async def still_held(self) -> bool:
        """Whether the claim is held at this moment, by the store's word. Not if that cannot be had."""
        try:
            now = await self._context.store.time()
            record = await self._mine(now)
        except StoreUnavailable:
            return False
        return record is not None and is_live(decoded(record).header, now)

    async def record(self, result: object, form: Form, body: bytes) -> Entry:
        """Write the outcome. What may have failed is tried again as long as the claim's lease lasts: the work was
        done, and afterwards everybody else has to take it for unknown."""
        model, pause, attempt = self._context.model, _FIRST_PAUSE, 0
        while True:
            if attempt:
                left = self.lease_ends_at - model.monotonic()
                if left <= 0:
                    break
                await model.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)
            attempt += 1
            try:
                now = await self._context.store.time()
                done = Entry(
                    replace(self.header, state=EntryState.DONE, lease_until=0, finished_at=now, reason="", form=form),
                    body,
                )
                if await self._finish(done, now, is_repeated=attempt > 1):
                    return done
            except StoreUnavailable as error:
                reason = error.detail
                continue
            except TooLarge as error:  # this store will never take it: the work is done, but nobody can be told
                reason = error.detail
                await self.leave_unknown(f"The work was done, but its outcome was not recorded: {reason}")
                break
            raise LostClaim(key=self.identity.key, result=result)
        raise NotRecorded(
            f"The work was done, but its outcome could not be recorded: {reason}", key=self.identity.key, result=result
        )

    async def release(self) -> None:
        """The work was not done, or its result should not be kept: the next caller runs it."""
        if self.header.attempt == 1:  # no earlier holder can still believe that the claim is theirs
            await self._let_go(None)
        else:
            await self._let_go(freed(self.header))

    async def leave_unknown(self, reason: str, *, since: Header | None = None) -> None:
        """Nobody knows whether the work was done: say so now, not only when the lease has passed."""
        header = replace(since or self.header, attempt=self.header.attempt)
        await self._let_go(replace(header, state=EntryState.UNKNOWN, token="", lease_until=0, reason=reason))

    def warn_of_staying(self, error: StoreUnavailable) -> None:
        telemetry.warning(
            "a claim could not be released; once its lease ends, its outcome is unknown to others until it is",
            key=self.identity.key,
            scope=self._context.settings.scope,
            detail=error.detail,
        )

    async def _finish(self, done: Entry, now: int, *, is_repeated: bool) -> bool:
        if (is_repeated or now >= self.header.lease_until) and not await self.is_held(now):
            found = await self._mine(now)
            return found is not None and decoded(found).header.state is EntryState.DONE  # by an earlier try
        if await self._context.write(self.identity.address, done, expect=self.version, now=now):
            return True
        if not await self.is_held(now):  # a renewal may have been written without our knowing
            return False
        return await self._context.write(self.identity.address, done, expect=self.version, now=now)

    async def _mine(self, now: int) -> Record | None:
        record = await self._context.store.look(self.identity.address, now=now)
        if record is None or decoded(record).header.token != self.header.token:
            return None
        return record

    async def _let_go(self, header: Header | None) -> None:
        """Nobody works under the claim now. If that cannot be written, a release is tried again in the background;
        an unknown outcome will show when the lease runs out."""
        if self.is_lost:
            return
        store, address = self._context.store, self.identity.address
        try:
            now = await store.time()
            if now >= self.header.lease_until and not await self.is_held(now):
                return  # it has passed to somebody else
            if header is None:
                await store.remove(address, expect=self.version, now=now)
            elif header.state is EntryState.FREE:
                await self._context.write(address, Entry(header), expect=self.version, now=now)
            elif await store.replace(address, encoded(Entry(header)), expect=self.version, now=now, expires_at=None):
                await self._context.note(self.identity, now)
        except StoreUnavailable as error:
            self.warn_of_staying(error)
            if header is None or header.state is EntryState.FREE:
                self._context.uncertain.add(self, header, lands_on=None)
