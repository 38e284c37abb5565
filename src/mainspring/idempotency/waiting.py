"""Idempotent work on an event loop. Claims of work that takes long are renewed by tasks that end with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from types import TracebackType
from typing import Any, Generic

from mainspring.idempotency.core import (
    LEASE_SECONDS,
    TTL_SECONDS,
    WAIT_SECONDS,
    P,
    Processor,
    R,
    Resolution,
)
from mainspring.idempotency.keys import DEFAULT_EXCLUDED
from mainspring.idempotency.outcome import IdempotencyRecord, Unresolved
from mainspring.idempotency.replays import Replays
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.idempotency.terms import Busy, Flight


class _Line:
    __slots__ = ("callers", "flight", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.flight = Flight()
        self.callers = 0


class _Turn:
    """One caller's place in the line for a key."""

    __slots__ = ("_address", "_line", "_lines", "_seconds")

    def __init__(self, lines: dict[str, _Line], address: str, seconds: float) -> None:
        self._lines = lines
        self._address = address
        self._seconds = seconds

    async def __aenter__(self) -> Flight:
        line = self._line = self._lines.setdefault(self._address, _Line())
        line.callers += 1
        try:
            if not line.lock.locked():
                await line.lock.acquire()  # at once
            else:
                async with asyncio.timeout(self._seconds):
                    await line.lock.acquire()
        except TimeoutError:
            self._leave()
            raise Busy from None
        except BaseException:
            self._leave()
            raise
        return line.flight

    async def __aexit__(self, *_: object) -> None:
        self._line.lock.release()
        self._leave()

    def _leave(self) -> None:
        self._line.callers -= 1
        if self._line.callers == 0:
            del self._lines[self._address]


class _Beat:
    """Renews a claim every now and then, until it ends. A renewal that is under way is never cut off."""

    __slots__ = ("_every_seconds", "_handle", "_is_over", "_renew", "_renewal")

    def __init__(self, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        self._renew = renew
        self._every_seconds = every_seconds
        self._is_over = False
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._schedule()

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        self._handle.cancel()
        while self._renewal is not None and not self._renewal.done():
            await asyncio.wait((self._renewal,))
        if self._renewal is not None:
            self._renewal.result()

    def _schedule(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._every_seconds, self._begin)

    def _begin(self) -> None:
        self._renewal = asyncio.create_task(self._beat(), name="mainspring-idempotency-renewal")

    async def _beat(self) -> None:
        if await self._renew() and not self._is_over:
            self._schedule()


class LoopModel:
    """Waiting, for event loops."""

    def __init__(self) -> None:
        self.lines: dict[str, _Line] = {}

    def turn(self, address: str, seconds: float) -> _Turn:
        return _Turn(self.lines, address, seconds)

    def beating(self, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> _Beat:
        return _Beat(renew, every_seconds)

    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:
        result = work(*arguments)
        return await result if isawaitable(result) else result

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()


class AsyncIdempotentProcessor(Generic[P, R]):
    """`IdempotentProcessor` for asyncio, with the same parameters. One event loop at a time.

    `work` and `resolve` are awaited if they return something to be awaited.
    Work that is cancelled leaves its key unknown, unless it is `safe_to_repeat`: nobody knows how far it came.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        work: Callable[[P], Awaitable[R]] | Callable[[P, Any], Awaitable[R]],
        *,
        scope: str | None = None,
        exclude_fields: Iterable[str] = DEFAULT_EXCLUDED,
        ttl_seconds: float = TTL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        keep: Callable[[R], bool] | None = None,
        resolve: Callable[[P, Unresolved], Awaitable[Resolution[R]] | Resolution[R]] | None = None,
        safe_to_repeat: bool = False,
        result_type: Any = Any,
    ) -> None:
        self._store = store
        self._model = LoopModel()
        self._core: Processor[P, R] = Processor(
            store.waiting(),
            self._model,
            work,
            scope=scope,
            exclude_fields=exclude_fields,
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            keep=keep,
            resolve=resolve,
            safe_to_repeat=safe_to_repeat,
            result_type=result_type,
        )

    @property
    def scope(self) -> str:
        return self._core.settings.scope

    @property
    def replays(self) -> Replays:
        """How many calls were `executed` and `replayed`."""
        return self._core.replays

    @property
    def waiting_keys(self) -> int:
        """How many keys are being asked for right now, in this process."""
        return len(self._model.lines)

    async def process(self, payload: P, key: str | None = None, *, connection: object = None) -> IdempotencyRecord[R]:
        """The outcome of this payload. A `key` of the caller's takes precedence, and is bound to the payload.

        With a `connection` everything happens in its transaction, and `work` gets it as its second argument: see
        `mainspring.idempotency.transaction`.
        """
        if connection is not None:
            from mainspring.idempotency.transaction import process_waiting  # noqa: PLC0415  (loads drivers' adapters)

            return await process_waiting(self._core, self._store, payload, key, connection)
        identity = self._core.identities.of(payload, key)
        return self._core.known(identity) or await self._core.process(payload, identity)

    async def open(self) -> None:
        """Connect now, instead of at the first call, and make what the store needs."""
        await self._core.time()

    async def settle(self, key: str, result: R) -> None:
        """Record by hand that work whose outcome is unknown was done, with this result."""
        await self._core.settle(key, result)

    async def forget(self, key: str) -> bool:
        """Let work run again, whatever is recorded of it: by hand. False if nothing is."""
        return await self._core.forget(key)

    async def aclose(self) -> None:
        """Close the store, as far as this event loop uses it."""
        await self._store.aclose()

    async def __aenter__(self) -> AsyncIdempotentProcessor[P, R]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
