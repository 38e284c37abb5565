"""Idempotent work on an event loop. What waits there is in `loops`, which is loaded with the first processor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Generic

from mainspring.idempotency.by_hand import KeyState
from mainspring.idempotency.core import (
    LEASE_SECONDS,
    TTL_SECONDS,
    WAIT_SECONDS,
    Match,
    P,
    Processor,
    R,
    Resolution,
)
from mainspring.idempotency.keys import DEFAULT_EXCLUDED, Encode
from mainspring.idempotency.record import IdempotencyRecord, Unresolved
from mainspring.idempotency.replays import Replays
from mainspring.idempotency.results import Decode
from mainspring.idempotency.stores import IdempotencyStore, checked_store


class AsyncIdempotentProcessor(Generic[P, R]):
    """`IdempotentProcessor` for asyncio, with the same parameters. One event loop at a time.

    `fn` and `resolve` are awaited if they return an awaitable.
    Cancelled work leaves the outcome of its key unknown, unless it is `safe_to_repeat`: it may have got anywhere.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        fn: Callable[[P], Awaitable[R]] | Callable[[P, Any], Awaitable[R]],
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
        match: Match = "payload",
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        from mainspring.idempotency.loops import LoopModel  # noqa: PLC0415  (loads asyncio)

        self._store = checked_store(store)
        self._model = LoopModel()
        self._core: Processor[P, R] = Processor(
            self._store.waiting(),
            self._model,
            fn,
            scope=scope,
            exclude_fields=exclude_fields,
            ttl_seconds=ttl_seconds,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            keep=keep,
            resolve=resolve,
            safe_to_repeat=safe_to_repeat,
            result_type=result_type,
            match=match,
            encode=encode,
            decode=decode,
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
        """How many keys are being processed right now in this process."""
        return len(self._model.lines)

    async def process(self, payload: P, key: str | None = None, *, connection: object = None) -> IdempotencyRecord[R]:
        """Return the outcome of the payload. A `key` given by the caller takes precedence and is bound to the payload.

        With a `connection`, everything happens in its transaction, and `fn` gets it as its second argument: see
        `mainspring.idempotency.transaction`.
        """
        if connection is not None:
            from mainspring.idempotency.transaction import process_waiting  # noqa: PLC0415  (loads drivers' adapters)

            return await process_waiting(self._core, self._store, payload, key, connection)
        identity = self._core.identities.of(payload, key)
        return self._core.known(identity) or await self._core.process(payload, identity)

    async def open(self) -> None:
        """Connect now instead of at the first call, and create what the store needs."""
        await self._core.time()

    async def settle(self, key: str, result: R) -> None:
        """Record manually that work whose outcome is unknown was done, with this result."""
        await self._core.settle(key, result)

    async def forget(self, key: str) -> bool:
        """Manually let work run again, whatever is recorded for it. False if nothing is."""
        return await self._core.forget(key)

    async def get(self, key: str) -> KeyState | None:
        """What is recorded of a key; None if nothing is."""
        return await self._core.get(key)

    async def list_unknown(self, limit: int = 100) -> list[KeyState]:
        """The keys of this scope whose outcome is unknown, as far as somebody has noticed: see `by_hand`."""
        return await self._core.list_unknown(limit)

    async def aclose(self) -> None:
        """Close what the store has opened for this event loop."""
        await self._store.aclose()

    async def __aenter__(self) -> AsyncIdempotentProcessor[P, R]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
