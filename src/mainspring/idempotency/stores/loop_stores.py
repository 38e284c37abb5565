"""Record stores opened from a URL. Threads reach theirs through an event loop of its own.

A record store belongs to one event loop, so each loop that uses it gets one, opened when it is first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from threading import Lock, Thread
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from mainspring.clock import SystemClock
from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.stores.process import Process
from mainspring.idempotency.stores.records import RecordClaims
from mainspring.model import Record
from mainspring.store import Store
from mainspring.stores import store_from_url
from mainspring.stores.addresses import split_url

T = TypeVar("T")

_LOOKS_FIRST: Final = ("sqlite", "postgresql", "mysql")
"""Databases where a write is a transaction of several steps, and a look is one step."""


class LoopThread:
    """An event loop in a thread, for blocking callers. It starts with its first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._lock = Lock()
        self.process = Process()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self.process.enter()
        except BaseException:
            coroutine.close()
            raise
        answer = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return answer.result()
        finally:
            wait((answer,))  # an interrupted thread goes on only when it is known what was written

    def close(self) -> None:
        with self._lock:
            if self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None
            self.process.leave()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="mainspring-idempotency-store", daemon=True)
                self._thread.start()
            return self._loop


class BlockingClaims:
    """The verbs for threads: each is run on the loop's thread and waited for."""

    def __init__(self, thread: LoopThread, claims: RecordClaims) -> None:
        self.looks_first = claims.looks_first
        self._thread = thread
        self._claims = claims

    async def time(self) -> int:
        clock = self._claims.clock
        return self._thread.run(self._claims.time()) if clock.is_stale else clock.now_ms()

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        return self._thread.run(self._claims.claim(address, value, version=version, now=now))

    async def look(self, address: str, *, now: int) -> Record | None:
        return self._thread.run(self._claims.look(address, now=now))

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        verb = self._claims.replace(address, value, expect=expect, now=now, expires_at=expires_at)
        return self._thread.run(verb)

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        return self._thread.run(self._claims.remove(address, expect=expect, now=now))

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        self._thread.run(self._claims.note(address, value, now=now))

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        return self._thread.run(self._claims.notes(after=after, limit=limit, now=now))

    async def strike(self, note: Record, *, now: int) -> None:
        self._thread.run(self._claims.strike(note, now=now))

    async def purge(self, *, now: int) -> None:
        self._thread.run(self._claims.purge(now=now))


class LoopStores:
    """What a URL names: opened once for each event loop that uses it."""

    def __init__(self, url: str) -> None:
        self.database, _, _ = url.partition(":")
        if self.database == "memory":
            raise ConfigError("Expected the URL of a database, got memory://: use InMemoryStore()")
        self.tables = ""
        if self.database in ("postgresql", "mysql"):
            _, options = split_url(url, "the URL of a database")
            schema, prefix = options.get("schema", ""), options.get("prefix", "mainspring_")
            self.tables = f"{schema}.{prefix}" if schema else prefix
        self._url = url
        self._check: Callable[[], None] = lambda: None
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Store]] = WeakKeyDictionary()
        self._thread = LoopThread()

    def refuse(self, check: Callable[[], None]) -> None:
        """`check` raises if the store may no longer be opened."""
        self._check = check

    def waiting(self) -> RecordClaims:
        return RecordClaims(self._records, looks_first=self.database in _LOOKS_FIRST)

    def blocking(self) -> ClaimStore:
        return BlockingClaims(self._thread, self.waiting())

    def close(self) -> None:
        if self._thread.process.is_another:
            return
        self._thread.run(self._close_here())
        self._thread.close()

    async def aclose(self) -> None:
        await self._close_here()
        await asyncio.to_thread(self.close)

    async def _records(self) -> Store:
        """The store of this loop. Callers that come while it opens wait for it; if that failed, it is tried again."""
        loop = asyncio.get_running_loop()
        opening = self._tasks.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._tasks[loop] = loop.create_task(self._open())
        if opening.done():
            return opening.result()
        return await asyncio.shield(opening)

    async def _open(self) -> Store:
        self._check()
        store = store_from_url(self._url, clock=SystemClock())
        await store.open()
        return store

    async def _close_here(self) -> None:
        opening = self._tasks.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            try:
                store = await opening
            except (StoreUnavailable, ConfigError):  # it never opened, and said so to those who asked
                return
            await store.close()
