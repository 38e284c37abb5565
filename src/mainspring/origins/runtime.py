"""The origins of one program: who may call them, how results reach them, and what a crash has left to be done.

A result is acknowledged after the write that holds its effect. So it may come again after a crash, and is then found to
have been consumed: one effect for each reqId.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

import msgspec

from mainspring import crashpoint, telemetry
from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.errors import InvalidInput, MainspringError, NotFound, TooLarge, Unavailable
from mainspring.fetches.errors import FetchError, FetchRefused, FetchWatchdog, fetch_error
from mainspring.fetches.left_results import LeftResults
from mainspring.fetches.messages import CreateFetch, FetchRef, FetchResult
from mainspring.fetches.outcome import MAY_HAVE_CHANGED
from mainspring.fetches.service import FetchService
from mainspring.origins.collector import Collector
from mainspring.origins.continuation import Continuation, method_of
from mainspring.origins.origin import Origin
from mainspring.origins.outbox import Kept, Outbox
from mainspring.origins.request import ResponseSync
from mainspring.origins.services import Services
from mainspring.origins.units import Units
from mainspring.store import RecordStore
from mainspring.wire.instants import to_instant

O = TypeVar("O", bound=Origin)  # noqa: E741 - an origin
P = ParamSpec("P")
R = TypeVar("R")

LONGEST_ID: Final = 255
SWEEP_SECONDS: Final = 15.0
LEFT_BEHIND_MS: Final = 10_000
"""Entries of the outbox that are older than this are no longer being worked on."""
SURE_MS: Final = 86_400_000
"""The least time for which a fetch is kept: within it, creating one again cannot make a second call."""


class Origins:
    """`receive` is where results come in; `sweep` and `collect` run as tasks; `close` after all else has ended."""

    def __init__(
        self,
        *,
        records: RecordStore,
        clock: Clock,
        fetches: FetchService,
        left: LeftResults,
        is_alone: Callable[[], bool],
        services: Services,
        kinds: Iterable[type[Origin]],
    ) -> None:
        """`is_alone`: no other instance is on the store, so nobody leaves results to this one."""
        self._clock = clock
        self._fetches = fetches
        self._outbox = Outbox(records, clock)
        self._units = Units(records=records, clock=clock, outbox=self._outbox, services=services, check=fetches.check)
        self._kinds: dict[str, type[Origin]] = {}
        self._collector = Collector(left, names=self._kinds.keys(), is_alone=is_alone)
        self._used = asyncio.Event()
        for kind in kinds:
            self.register(kind)

    def close(self) -> None:
        self._units.close()

    def register(self, kind: type[Origin]) -> None:
        if not (isinstance(kind, type) and issubclass(kind, Origin) and kind is not Origin):
            raise InvalidInput(f"Expected a class derived from Origin, got {kind!r}")
        other = self._kinds.setdefault(kind.origin_name, kind)
        if other is not kind:
            raise InvalidInput(f"Expected one origin named {kind.origin_name!r}, got {other!r} and {kind!r}")
        self._used.set()

    def ref(self, kind: type[O], origin_id: str) -> OriginRef[O]:
        self.register(kind)
        if not isinstance(origin_id, str) or not 1 <= len(origin_id) <= LONGEST_ID or not origin_id.isprintable():
            raise InvalidInput(f"Expected an id of 1 to {LONGEST_ID} printable characters, got {origin_id!r:.300}")
        return OriginRef(self, self._units, kind, origin_id)

    # --- units ------------------------------------------------------------------------------------------

    async def call(self, kind: type[O], origin_id: str, work: Callable[[O], R]) -> R:
        """Run a unit on behalf of the program, and create the fetches that it asked for."""
        done = await self._units.run(kind, origin_id, work)
        assert done is not None, "Expected only a consumed result to have been consumed before"
        await self._create(done.kept)
        return done.value

    def knows(self, name: str) -> bool:
        return name in self._kinds

    async def receive(self, name: str, origin_id: str, result: FetchResult) -> None:
        """Have the continuation of a fetch take its result. Returns when the effect is committed, or was already."""
        kind = self._kinds.get(name)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            raise Unavailable(f"Expected an origin that this program knows ({known}), got {name!r}")
        await self._consume(kind, origin_id, result.req_id, result.context_json, _argument(result))

    async def _consume(
        self, kind: type[Origin], origin_id: str, req_id: str, context: bytes, result: ResponseSync | FetchError
    ) -> None:
        continuation = msgspec.json.decode(context, type=Continuation)
        method = method_of(kind, continuation.method)
        arguments, keywords = continuation.filled(result)

        def take(origin: Origin) -> None:
            method(origin, *arguments, **keywords)

        done = await self._units.run(kind, origin_id, take, consumes=req_id)
        if done is None:
            telemetry.debug("a result had already been consumed", origin=name_of(kind, origin_id), req_id=req_id)
        else:
            await self._create(done.kept)

    async def _create(self, kept: Kept | None) -> None:
        """Create what was committed. What cannot be created now stays in the outbox, and the commit stands."""
        if kept is None:
            return
        try:
            for fetch in kept.entry.fetches:
                await self._fetches.create(fetch)
            crashpoint.reach(crashpoint.ORIGIN_CREATED)
            await self._outbox.remove(kept)
            self._collector.asked()
        except MainspringError as error:
            telemetry.warning("fetches of an origin will be created later", reason=error.detail)

    # --- what was left behind ---------------------------------------------------------------------------

    async def collect(self) -> None:
        """Take the results that others have left because they do not know these origins."""
        await self._used.wait()
        await self._collector.collect()

    async def sweep(self) -> None:
        """See to the outbox: at the start to all of it, as whoever wrote it may have died, later to old entries."""
        await self._used.wait()
        older_than = self._clock.now_ms()
        while True:
            with guarded("the outbox of origins was not looked through"):
                async for kept in self._outbox.left(older_than=older_than):
                    await self._complete_safely(kept)
            await asyncio.sleep(SWEEP_SECONDS)
            older_than = self._clock.now_ms() - LEFT_BEHIND_MS

    async def _complete_safely(self, kept: Kept) -> None:
        kind = self._kinds.get(kept.entry.origin)
        if kind is None:
            return  # of a program that has other origins
        # A user's function may raise; that must not keep the others waiting.
        with guarded("fetches of an origin could not be created, and will be tried again"):
            await self._complete(kind, kept)

    async def _complete(self, kind: type[Origin], kept: Kept) -> None:
        entry = kept.entry
        asked = [fetch for fetch in entry.fetches if isinstance(fetch.req_id, str)]
        waiting = set(await self._units.waiting(kind, entry.origin_id))
        if any(fetch.req_id not in waiting for fetch in asked):
            waiting = await self._units.fence(kind, entry.origin_id)
        for fetch in asked:
            if fetch.req_id in waiting:
                error = await self._create_late(fetch, age_ms=self._clock.now_ms() - entry.at)
                if error is not None:
                    await self._consume(kind, entry.origin_id, error.req_id, bytes(fetch.context or b""), error)
        await self._outbox.remove(kept)

    async def _create_late(self, fetch: CreateFetch, *, age_ms: int) -> FetchError | None:
        """Create what an earlier program may have created already. Returns an error if a result can no longer come."""
        req_id = str(fetch.req_id)
        try:
            if age_ms < SURE_MS:
                await self._fetches.create(fetch)
            else:
                await self._fetches.get(FetchRef(req_id=req_id))
        except (InvalidInput, TooLarge) as error:
            return FetchRefused(f"{error.detail}. Nothing was sent.", definite=True, req_id=req_id)
        except NotFound:
            return FetchWatchdog(
                f"Asked for {age_ms // 1000} s ago, and nobody knows whether the call was made. {MAY_HAVE_CHANGED}",
                req_id=req_id,
            )
        return None


class OriginRef(Generic[O]):
    """An origin as the program sees it: `await ref.method(arguments)` runs that method as one unit.

    `call` does the same for type checkers: `await ref.call(Accounts.deposit, 5)`.
    """

    def __init__(self, origins: Origins, units: Units, kind: type[O], origin_id: str) -> None:
        self._origins = origins
        self._units = units
        self._kind = kind
        self.id = origin_id

    async def call(self, method: Callable[Concatenate[O, P], R], /, *arguments: P.args, **keywords: P.kwargs) -> R:
        """Run a method in a thread. When this returns, its changes and the fetches it requested are committed.

        If the method raises, nothing has happened. After `StoreUnavailable` that is unknown: check before you repeat.
        """
        # By its name, so that an override in a subclass is what runs.
        found: Callable[Concatenate[O, P], R] = method_of(self._kind, getattr(method, "__name__", ""))
        return await self._origins.call(self._kind, self.id, lambda origin: found(origin, *arguments, **keywords))

    async def snapshot(self) -> dict[str, Any]:
        """A copy of the current state."""
        return dict(await self._units.state(self._kind, self.id))

    async def waiting(self) -> dict[str, datetime]:
        """The reqIds whose results the origin is waiting for, and since when."""
        found = await self._units.waiting(self._kind, self.id)
        return {req_id: to_instant(since) for req_id, since in found.items()}

    async def forget(self, req_id: str) -> bool:
        """Stop waiting for a result: if it arrives, it changes nothing. False if it was not being waited for."""
        return await self._units.run(self._kind, self.id, lambda origin: None, consumes=req_id) is not None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = method_of(self._kind, name)

        def run(*arguments: Any, **keywords: Any) -> Awaitable[Any]:
            return self._origins.call(self._kind, self.id, lambda origin: method(origin, *arguments, **keywords))

        return run

    def __repr__(self) -> str:
        return f"<OriginRef {name_of(self._kind, self.id)}>"


def name_of(kind: type[Origin], origin_id: str) -> str:
    return f"{kind.origin_name}/{origin_id}"


def _argument(result: FetchResult) -> ResponseSync | FetchError:
    """The result as a continuation gets it."""
    if result.response is not None:
        return ResponseSync.of(result.response, req_id=result.req_id)
    error = result.error
    if error is None:
        return fetch_error("", "", definite=False, req_id=result.req_id)
    return fetch_error(error.kind, error.message, definite=error.definite, req_id=result.req_id)
