"""The protocol: claim before work, record after it, replay ever after. Written once, for threads and for asyncio.

    absent ──claim──▶ running ──result──▶ done (replayed until it expires)
       ▲                │ │ └─does not know─▶ unknown
       └──exception─────┘ └─lease passed────▶ unknown ──resolve, safe_to_repeat, settle, forget──▶ on

What may be relied on:

- Work runs only under a claim, and a claim is a compare-and-set in the store: of all callers anywhere, one has it.
- The outcome is written by compare-and-set on the version of the claim: whoever has lost it overwrites nothing.
- Work that may have been done is never run again by itself. Only its owner can say that this is harmless
  (`safe_to_repeat`), find out what happened (`resolve`), or decide by hand (`settle`, `forget`).

The code is coroutines, but it does not care how waiting is done: its `Model` does that. With the one for threads, no
coroutine ever suspends, so one `send` runs it to its end (`sync_processor.run`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from mainspring.errors import ConfigError, InvalidInput, StoreUnavailable
from mainspring.idempotency import by_hand, entries, keys
from mainspring.idempotency.claims import ClaimStore, Peeks, Purges
from mainspring.idempotency.context import CURRENT, CurrentClaim
from mainspring.idempotency.entries import Entry, EntryState, Form, Header, decoded, encoded, first_version, new_token
from mainspring.idempotency.errors import InProgress, NotRecorded, UnknownOutcome, reused
from mainspring.idempotency.holder import Claim, ClaimContext
from mainspring.idempotency.record import IdempotencyRecord, NotDone, Resolved, Unresolved
from mainspring.idempotency.replays import Replays
from mainspring.idempotency.results import Decode, ResultCodec
from mainspring.idempotency.terms import Busy, Circular, Flight, Model, Settings, T
from mainspring.idempotency.uncertain import ABSENT
from mainspring.model import Record

P = TypeVar("P")
R = TypeVar("R")

Resolution = Resolved[R] | NotDone | None
Match = Literal["payload", "key"]
"""What makes two calls the same: their payloads, to which a caller's key is bound; or a caller's key alone."""

TTL_SECONDS: Final = 86_400.0
LEASE_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 10.0
PURGE_EVERY: Final = 50
"""How many transactions there are between two looks for expired records, each of which removes more than that."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.5
_LAZY: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)
_DONE: Final = EntryState.DONE  # naming a member of an enum takes longer than finding the record in memory


class Processor(Generic[P, R]):
    """What both processors share: everything but waiting."""

    def __init__(
        self,
        store: ClaimStore,
        model: Model,
        fn: Callable[..., R | Awaitable[R]],
        *,
        scope: str | None,
        exclude_fields: Iterable[str],
        ttl_seconds: float,
        lease_seconds: float,
        wait_seconds: float,
        keep: Callable[[R], bool] | None,
        resolve: Callable[[P, Unresolved], Any] | None,
        safe_to_repeat: bool,
        result_type: Any,
        match: Match = "payload",
        encode: keys.Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        if not callable(fn):
            raise ConfigError(f"Expected a function as the work, got {fn!r:.100}")
        refuse_generators(fn)
        if resolve is not None and safe_to_repeat:
            raise ConfigError("Expected one of resolve and safe_to_repeat, got both")
        if match not in get_args(Match):
            raise ConfigError(f"Expected match= to be payload or key, got {match!r}")
        self.settings = Settings(
            scope=keys.checked_scope(scope, fn),
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            safe_to_repeat=safe_to_repeat,
        )
        self.identities = keys.Identities(
            self.settings.scope,
            keys.exclusion(exclude_fields),
            encode=encode,
            compares_payloads=match == "payload",
        )
        self.replays = Replays(self.settings.scope, monotonic=model.monotonic)
        self._codec = ResultCodec(result_type, encode=encode, decode=decode)
        self._store = store
        self._peeks = store if isinstance(store, Peeks) else None
        self._model = model
        self._context = ClaimContext(store, model, self.settings, kept_as=self._codec.kept_as)
        self._fn = fn
        self._keep = keep
        self._resolve = resolve
        self._unpurged = 0

    # --- What callers ask -----------------------------------------------------------------------------------

    def known(self, identity: keys.Identity) -> IdempotencyRecord[R] | None:
        """The outcome, from a store that has it at hand, without standing in line."""
        entry = None if self._peeks is None else self._peeks.peek(identity.address)
        if entry is None or entry.header.state is not _DONE:
            return None
        self._check_fingerprint(entry.header, identity)
        return self.replayed(entry, identity.key)

    async def process(self, payload: P, identity: keys.Identity) -> IdempotencyRecord[R]:
        asked_at, left = self._model.monotonic(), self.settings.wait_seconds
        deadline = asked_at + left
        try:
            while True:
                async with self._model.turn(identity.address, left) as flight:
                    if flight.failure is None:
                        return await self._fly(identity, payload, asked_at, deadline, flight)
                    if flight.failed == identity.fingerprint:
                        raise flight.failure
                left = max(0.0, deadline - self._model.monotonic())  # it belonged to another payload: start again
        except Busy as busy:
            if busy.fingerprint and identity.fingerprint and busy.fingerprint != identity.fingerprint:
                raise reused(identity.key) from None
            raise InProgress(by_hand.still_in_progress(identity.key), key=identity.key) from None
        except Circular:
            raise InvalidInput(
                f"The work of the key {identity.key!r} would wait for itself: it was called again from within that work"
            ) from None

    async def settle(self, key: str, result: R) -> None:
        """Record by hand that the work of this key was done, with this result."""
        form, body = self._codec.write(result)
        await by_hand.settle(self._store, self.settings.scope, key, form, body, ttl_ms=self.settings.ttl_ms)

    async def forget(self, key: str) -> bool:
        """Let the work of this key run again, whatever is recorded of it. Refused while somebody is working on it."""
        return await by_hand.forget(self._store, self.settings.scope, key, ttl_ms=self.settings.ttl_ms)

    async def get(self, key: str) -> by_hand.KeyState | None:
        """What is recorded of this key."""
        return await by_hand.look(self._store, self.settings.scope, key)

    async def list_unknown(self, limit: int) -> list[by_hand.KeyState]:
        """The keys of this scope that somebody has found to be unknown."""
        found: list[by_hand.KeyState] = []
        after: str | None = ""
        while after is not None and len(found) < limit:
            left = limit - len(found)
            page = await by_hand.list_unknown(self._store, scope=self.settings.scope, after=after, limit=left)
            found += page.keys
            after = page.after
        return found

    # --- What a transaction also needs ----------------------------------------------------------------------

    async def time(self) -> int:
        """The claims of the store. Connects at the first use, and creates what the store needs."""
        return await self._store.time()

    def new_token(self) -> str:
        return new_token(self._model.entropy)

    async def purge_sometimes(self, now: int) -> None:
        self._unpurged += 1
        if self._unpurged >= PURGE_EVERY and isinstance(self._store, Purges):
            self._unpurged = 0
            await self._store.purge(now=now)

    def keeps(self, result: R) -> bool:
        return self._keep is None or self._keep(result)

    def repeats_now(self, entry: Entry, identity: keys.Identity, now: int) -> bool:
        """Whether work with this record may be resolved or repeated by this caller."""
        self._check_fingerprint(entry.header, identity)
        return self.repeats and entries.is_unknown(entry.header, now)

    async def resolution(self, payload: P, before: Header, key: str) -> Resolved[R] | NotDone:
        """What the caller's `resolve` finds out. Raises `UnknownOutcome` if that is nothing."""
        assert self._resolve is not None
        unresolved = Unresolved(
            key=key, started_at=before.started_at, attempt=before.attempt, reason=entries.reason_of(before)
        )
        resolution: Resolution[R] = await self._model.call(self._resolve, payload, unresolved)
        if resolution is None:
            raise self._unknown(before, key)
        if not isinstance(resolution, Resolved | NotDone):
            raise InvalidInput(f"Expected resolve to return Resolved, NotDone or None, got {resolution!r}")
        return resolution

    async def call(self, *arguments: object) -> R:
        result: R = await self._model.call(self._fn, *arguments)
        if type(result) in _LAZY and _has_not_begun(result):
            raise _not_done(result)
        return result

    def replayed(self, entry: Entry, key: str) -> IdempotencyRecord[R]:
        try:
            result = self._codec.read(entry.header.form, entry.body)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise UnknownOutcome(
                f"The work of the key {key!r} was done, but its recorded result cannot be read: {error}", key=key
            ) from error
        self.replays.count_replay()
        return IdempotencyRecord(result, True, key)

    def written(self, result: R, key: str) -> tuple[Form, bytes]:
        try:
            return self._codec.write(result)
        except InvalidInput as error:
            raise NotRecorded(f"{error.detail} (the work was done)", key=key, result=result) from error

    def judged(self, entry: Entry, identity: keys.Identity, now: int) -> Entry:
        """The outcome that a record holds, for those who neither wait nor resolve."""
        header = entry.header
        self._check_fingerprint(header, identity)
        if header.state is EntryState.DONE:
            return entry
        if entries.is_live(header, now):
            raise by_hand.in_progress(header, identity.key, now)
        raise self._unknown(header, identity.key)

    async def _fly(
        self, identity: keys.Identity, payload: P, asked_at: float, deadline: float, flight: Flight
    ) -> IdempotencyRecord[R]:
        """Deliver the outcome, also to those who wait."""
        if flight.outcome is not None and asked_at <= flight.as_of:
            self._check_fingerprint(flight.outcome.header, identity)
            return self.replayed(flight.outcome, identity.key)
        as_of = self._model.monotonic()
        held = await self._acquire(identity, payload, deadline)
        if isinstance(held, Entry):
            flight.outcome, flight.as_of = held, as_of
            return self.replayed(held, identity.key)
        return await self._run(held, payload, flight)

    # --- Claiming -------------------------------------------------------------------------------------------

    async def _acquire(self, identity: keys.Identity, payload: P, deadline: float) -> Claim | Entry:
        """The claim, or the outcome that is there instead. Waits for those who are working on it elsewhere."""
        pause = _FIRST_PAUSE
        while True:
            now = await self._store.time()
            record = await self._store.look(identity.address, now=now) if self._store.looks_first else None
            if record is None:
                claim = self._fresh(identity, now)
                record = await self._taken(claim, self._claim(claim, now), None, lands_on=ABSENT)
                if record is None:
                    return claim
            while record is not None:
                held = await self._judge(record, identity, payload, now)
                if held is not None:
                    return held
                left = deadline - self._model.monotonic()
                if left <= 0:
                    raise by_hand.in_progress(decoded(record).header, identity.key, now)
                await self._model.sleep(min(pause * (0.5 + self._model.entropy(1)[0] / 510), left))
                pause = min(pause * 2, _LONGEST_PAUSE)
                now = await self._store.time()
                record = await self._store.look(identity.address, now=now)

    def _fresh(self, identity: keys.Identity, now: int, before: Record | None = None) -> Claim:
        token = new_token(self._model.entropy)
        header = Header(
            state=EntryState.RUNNING,
            fingerprint=identity.fingerprint,
            token=token,
            attempt=1 if before is None else decoded(before).header.attempt + 1,
            started_at=now,
            lease_until=now + self.settings.lease_ms,
        )
        return Claim(self._context, identity, header, first_version(token) if before is None else before.version + 1)

    async def _taken(self, claim: Claim, take: Coroutine[Any, Any, T], before: Header | None, *, lands_on: int) -> T:
        """Write a claim over a version. A caller that goes away meanwhile takes it back: its work has not begun.

        After a refusal nobody knows whether the claim is there, or will be; but nobody is working under it.
        """
        uncertain = self._context.uncertain
        try:
            return await self._model.shielded(take)
        except StoreUnavailable:
            uncertain.add(claim, before, lands_on=lands_on)
            raise
        except BaseException:
            await self._model.shielded(uncertain.withdraw(claim, before, lands_on=lands_on))
            raise

    async def _claim(self, claim: Claim, now: int) -> Record | None:
        """After a refusal the claim may be there all the same: it is looked for."""
        address, value = claim.identity.address, encoded(Entry(claim.header))
        try:
            found = await self._store.claim(address, value, version=claim.version, now=now)
        except StoreUnavailable:
            if not await claim.is_held(now):
                raise
            found = None
        if found is None:
            await self._check_lease(claim)
        return found

    async def _take_over(self, claim: Claim, before: Record, now: int) -> bool:
        """The same, for a record that is there."""
        address, value = claim.identity.address, encoded(Entry(claim.header))
        try:
            is_taken = await self._store.replace(address, value, expect=before.version, now=now, expires_at=None)
        except StoreUnavailable:
            if not await claim.is_held(now):
                raise
            is_taken = True
        if is_taken:
            await self._check_lease(claim)
        return is_taken

    async def _check_lease(self, claim: Claim) -> None:
        """A claim that took longer than its lease may be somebody else's: no work begins before it is renewed."""
        now = await self._store.time()
        if now < claim.header.lease_until:
            return
        await claim.renew()
        if claim.header.lease_until <= now:
            raise StoreUnavailable("The claim of a key was written too slowly: its lease has ended")

    async def _judge(self, record: Record, identity: keys.Identity, payload: P, now: int) -> Claim | Entry | None:
        """What a record means to a caller: its outcome, a claim to take over, an error; None means wait."""
        entry = decoded(record)
        header = self._context.uncertain.before(entry.header)
        if header.state is not EntryState.FREE:
            self._check_fingerprint(header, identity)
            if entries.is_live(header, now):
                return None
            if header.state is EntryState.DONE or not self.repeats:
                if header.state is not EntryState.DONE:
                    await self._context.note(identity, now)
                return self.judged(entry, identity, now)
        claim = self._fresh(identity, now, record)
        before = header if header.state is EntryState.FREE else entries.as_unknown(header, claim.header.attempt)
        if not await self._taken(claim, self._take_over(claim, record, now), before, lands_on=record.version):
            return None  # somebody else was faster; look again
        if header.state is EntryState.FREE or self._resolve is None:
            return claim
        return await self._resolved(claim, header, payload)

    @property
    def repeats(self) -> bool:
        """Whether work whose outcome is unknown may run again, or its outcome can be found out."""
        return self._resolve is not None or self.settings.safe_to_repeat

    async def _resolved(self, claim: Claim, before: Header, payload: P) -> Claim | Entry:
        """Ask the caller's `resolve`, under the claim, so that only one asks."""
        reason = entries.reason_of(before)
        try:
            async with claim.beating():
                resolution = await self.resolution(payload, before, claim.identity.key)
        except BaseException:
            await self._model.shielded(claim.leave_unknown(reason, since=before))
            raise
        if isinstance(resolution, Resolved):
            return await self._model.shielded(self._record(claim, resolution.result))
        return claim

    # --- Working --------------------------------------------------------------------------------------------

    async def _run(self, claim: Claim, payload: P, flight: Flight) -> IdempotencyRecord[R]:
        """The work, and then what becomes of the claim, which no cancellation cuts short."""
        shielded, is_done = self._model.shielded, False
        flight.running = claim.identity.fingerprint
        try:
            async with claim.beating():
                result = await self._called(claim, payload)
                is_done = True
        except BaseException as error:
            if not is_done:
                await shielded(self._failed(claim, error, flight))
                raise
            await shielded(self._ended(claim, result, flight))  # cancelled after the work
            raise
        finally:
            flight.running = ""
        await shielded(self._ended(claim, result, flight))
        self.replays.count_run()
        return IdempotencyRecord(result, False, claim.identity.key)

    async def _called(self, claim: Claim, payload: P) -> R:
        outer = CURRENT.get()
        CURRENT.set(CurrentClaim(claim, is_waiting=self._model.is_waiting))
        try:
            return await self.call(payload)
        finally:
            CURRENT.set(outer)  # a token would be refused where an abandoned call is closed in another context

    async def _failed(self, claim: Claim, error: BaseException, flight: Flight) -> None:
        if isinstance(error, UnknownOutcome):
            error.key = error.key or claim.identity.key
            await claim.leave_unknown(error.detail)
        elif isinstance(error, Exception):
            await claim.release()
            flight.failure, flight.failed = error, claim.identity.fingerprint
        elif self.settings.safe_to_repeat:
            await claim.release()
        else:  # cancelled or ended, at a point that nobody knows
            await claim.leave_unknown(f"the work was interrupted by {type(error).__name__}")

    async def _ended(self, claim: Claim, result: R, flight: Flight) -> None:
        if await self._is_kept(claim, result):
            as_of = self._model.monotonic()  # a process may freeze between the record and its answer
            flight.outcome, flight.as_of = await self._record(claim, result), as_of
        else:
            await claim.release()

    async def _is_kept(self, claim: Claim, result: R) -> bool:
        """A policy that fails decides nothing: the work was done, so it must not look as if it could run again."""
        try:
            return self.keeps(result)
        except BaseException:
            await claim.leave_unknown("the work was done, but deciding whether to keep its result failed")
            raise

    async def _record(self, claim: Claim, result: R) -> Entry:
        try:
            form, body = self.written(result, claim.identity.key)
        except NotRecorded:
            await claim.leave_unknown("the work was done, but its result could not be kept")
            raise
        return await claim.record(result, form, body)

    # --- Refusing -------------------------------------------------------------------------------------------

    def _check_fingerprint(self, header: Header, identity: keys.Identity) -> None:
        """Without a fingerprint, on either side, the key alone decides."""
        if header.fingerprint != identity.fingerprint and header.fingerprint and identity.fingerprint:
            raise reused(identity.key)

    def _unknown(self, header: Header, key: str) -> UnknownOutcome:
        return UnknownOutcome(
            f"The outcome of the key {key!r} in {self.settings.scope} is unknown: {entries.reason_of(header)}. "
            "It may have been done completely, in part, or not at all, and is not run again automatically",
            key=key,
            started_at=header.started_at,
        )


def refuse_generators(work: object) -> None:
    from inspect import isasyncgenfunction, isgeneratorfunction  # noqa: PLC0415  (takes longer to load than this library)

    if isgeneratorfunction(work) or isasyncgenfunction(work):
        raise ConfigError(
            "Expected a function that returns its result, got a generator function: nothing has been done when it "
            "returns. Return a list"
        )


def _has_not_begun(result: Any) -> bool:
    from inspect import getcoroutinestate, getgeneratorstate  # noqa: PLC0415  (for programs that are wrong)

    if isinstance(result, CoroutineType):
        return getcoroutinestate(result) == "CORO_CREATED"
    return isinstance(result, AsyncGeneratorType) or getgeneratorstate(result) == "GEN_CREATED"


def _not_done(result: Any) -> ConfigError:
    """For work that has only been called: what it returned would do the work, and nobody is going to run it."""
    if not isinstance(result, AsyncGeneratorType):  # which has nothing to close before it begins
        result.close()
    return ConfigError(
        f"Expected the work to be done when its function returns, got a {type(result).__name__.replace('_', ' ')} that "
        "has not begun: decorate the coroutine function itself, or use AsyncIdempotentProcessor; of a generator, "
        "return a list"
    )
