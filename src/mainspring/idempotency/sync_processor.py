"""Idempotent work in threads.

The protocol's coroutines run to their end in one step, because nothing here suspends: what has to wait blocks
its thread. One thread per store renews the claims of long-running work; it starts with the first such work. So a
store that hangs costs no claim in another.
"""
# ruff: noqa: ASYNC251  (these coroutines are driven by `run`, outside of any event loop: blocking is their purpose)

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from threading import Condition, Lock, Thread
from types import TracebackType
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from mainspring.errors import ConfigError
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
from mainspring.idempotency.terms import HELD, Busy, Circular, Flight

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("Expected a coroutine that does not suspend, got one that does")


class _Turn:
    """One caller's place in the line for a key."""

    __slots__ = ("_address", "_line", "_lines", "_outer", "_seconds")

    def __init__(self, lines: Lines, address: str, seconds: float) -> None:
        self._lines = lines
        self._address = address
        self._seconds = seconds

    async def __aenter__(self) -> Flight:
        line = self._line = self._lines.join(self._address)
        try:
            held = HELD.get()
            if line.holder in held:
                raise Circular
            if not line.lock.acquire(timeout=self._seconds):
                raise Busy(line.flight.running)
        except BaseException:
            self._lines.leave(self._address, line)
            raise
        line.holder = self
        self._outer = held
        HELD.set((*held, self))
        return line.flight

    async def __aexit__(self, *_: object) -> None:
        HELD.set(self._outer)
        line = self._line
        line.holder = None
        if line.flight.failure is not None:
            self._lines.end(self._address, line)
        line.lock.release()
        self._lines.leave(self._address, line)


class _Line:
    __slots__ = ("callers", "flight", "holder", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.flight = Flight()
        self.holder: _Turn | None = None
        self.callers = 0


class Lines:
    """A line of callers for each key that is being asked for: it exists only as long as somebody stands in it."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._guard = Lock()

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, address: str) -> _Line:
        with self._guard:
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = _Line()
            line.callers += 1
            return line

    def leave(self, address: str, line: _Line) -> None:
        with self._guard:
            line.callers -= 1
            if line.callers > 0:
                return
            line.flight.failure = None  # its traceback leads back here
            if self._lines.get(address) is line:
                del self._lines[address]

    def end(self, address: str, line: _Line) -> None:
        """Whoever comes from now on stands in another line."""
        with self._guard:
            if self._lines.get(address) is line:
                del self._lines[address]


class _Beat:
    """One claim that is to be renewed. `lock` is held while it is."""

    __slots__ = ("_heart", "every_seconds", "is_over", "lock", "renew")

    def __init__(self, heart: Heart, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        self._heart = heart
        self.renew = renew
        self.every_seconds = every_seconds
        self.is_over = False
        self.lock = Lock()

    async def __aenter__(self) -> None:
        self._heart.add(self)

    async def __aexit__(self, *_: object) -> None:
        self.is_over = True
        self._heart.remove(self)
        with self.lock:  # a renewal that is under way changes the version, which the next write has to know
            pass


class Heart:
    """The thread that renews, one for each store. It ends when it has been idle for a while, and starts again.

    Claims of one interval fall due in the order in which they came, so adding and removing one costs next to nothing.
    """

    IDLE_SECONDS: Final = 10.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start afresh: a forked child has none of its parent's threads and claims."""
        self._news = Condition()
        self._due: dict[float, dict[_Beat, float]] = {}
        self._is_running = False
        self._wakes_at = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, beat: _Beat) -> None:
        with self._news:
            due = time.monotonic() + beat.every_seconds
            self._due.setdefault(beat.every_seconds, {})[beat] = due
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="mainspring-idempotency", daemon=True).start()
            elif due < self._wakes_at:
                self._news.notify()

    def remove(self, beat: _Beat) -> None:
        with self._news:
            self._due.get(beat.every_seconds, {}).pop(beat, None)

    def _run(self) -> None:
        try:
            while (beat := self._next()) is not None:
                with beat.lock:
                    held = not beat.is_over and run(_answer(beat.renew))
                if held:
                    self.add(beat)
        except BaseException:  # a defect in a store: the next claim starts another thread
            self._is_running = False
            raise

    def _next(self) -> _Beat | None:
        """The next one that falls due, when it does. None after a while with nothing at all to wait for."""
        with self._news:
            while True:
                firsts = [next(iter(beats.items())) for beats in self._due.values() if beats]
                beat, due = min(
                    firsts, key=lambda first: first[1], default=(None, time.monotonic() + self.IDLE_SECONDS)
                )
                self._wakes_at = due
                wait = due - time.monotonic()
                if beat is not None and wait <= 0:
                    del self._due[beat.every_seconds][beat]
                    return beat
                if not self._news.wait(wait) and beat is None and not len(self):
                    self._is_running = False
                    return None


_hearts: Final[WeakValueDictionary[int, Heart]] = WeakValueDictionary()
"""By the identity of their store: the processor that holds the heart also holds the store."""


def heart_of(store: object) -> Heart:
    return _hearts.setdefault(id(store), Heart())


def _reset_hearts() -> None:
    for heart in list(_hearts.values()):
        heart.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_hearts)


async def _answer(renew: Callable[[], Awaitable[bool]]) -> bool:
    return await renew()


class ThreadModel:
    """Waiting, for threads."""

    is_waiting = False
    monotonic = staticmethod(time.monotonic)
    entropy = staticmethod(os.urandom)

    def __init__(self, heart: Heart) -> None:
        self.lines = Lines()
        self._heart = heart

    def turn(self, address: str, seconds: float) -> _Turn:
        return _Turn(self.lines, address, seconds)

    def beating(self, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> _Beat:
        return _Beat(self._heart, renew, every_seconds)

    def keep_trying(self, step: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        self._heart.add(_Beat(self._heart, step, every_seconds))

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:
        return work(*arguments)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class IdempotentProcessor(Generic[P, R]):
    """Runs `fn` once for each payload, or for each key given by a caller, and replays its result to all others.

        processor = IdempotentProcessor(SQLiteStore("app.db"), charge)
        record = processor.process(order)          # record.result, record.was_replay, record.key

    May be shared by threads. Processes and machines that share the store share the keys of one `scope`.

    - `scope`: what the keys belong to; by default, the full name of `fn`.
    - `exclude_fields`: fields of the payload that do not make it a different one. Paths: `meta.trace_id`.
    - `ttl_seconds`: how long an outcome is replayed. `lease_seconds`: how long to wait for a holder that stopped
      responding; claims are renewed while the work runs, however long that takes.
    - `wait_seconds`: how long callers wait for work in progress before `InProgress`; 0 refuses them at once.
    - `keep`: which results are recorded; others are returned, and the next caller runs the work again.
    - `resolve`: finds out what became of work whose outcome is unknown: `Resolved`, `NotDone`, or None.
    - `safe_to_repeat`: such work may simply run again.
    - `result_type`: the type results are read back as; needed for results that are not JSON values.
    - `match="key"`: a caller's key alone decides; payloads are not compared.
    - `encode(value)`: what stands for a value of a type that the library does not know, in payloads and results;
      `decode(type, value)` makes it again, for results.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        fn: Callable[[P], R] | Callable[[P, Any], R],
        *,
        scope: str | None = None,
        exclude_fields: Iterable[str] = DEFAULT_EXCLUDED,
        ttl_seconds: float = TTL_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        keep: Callable[[R], bool] | None = None,
        resolve: Callable[[P, Unresolved], Resolution[R]] | None = None,
        safe_to_repeat: bool = False,
        result_type: Any = Any,
        match: Match = "payload",
        encode: Encode | None = None,
        decode: Decode | None = None,
    ) -> None:
        from inspect import iscoroutinefunction  # noqa: PLC0415  (takes longer to load than this whole library)

        if iscoroutinefunction(fn) or iscoroutinefunction(resolve):
            raise ConfigError("Expected plain functions, got a coroutine function: AsyncIdempotentProcessor")
        self._store = checked_store(store)
        self._model = ThreadModel(heart_of(store))
        self._core: Processor[P, R] = Processor(
            self._store.blocking(),
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

    def process(self, payload: P, key: str | None = None, *, connection: object = None) -> IdempotencyRecord[R]:
        """Return the outcome of the payload. A `key` given by the caller takes precedence and is bound to the payload.

        With a `connection`, everything happens in its transaction, and `fn` gets it as its second argument: see
        `mainspring.idempotency.transaction`.
        """
        if connection is not None:
            from mainspring.idempotency.transaction import process_blocking  # noqa: PLC0415  (loads drivers' adapters)

            return process_blocking(self._core, self._store, payload, key, connection)
        core = self._core
        identity = core.identities.of(payload, key)
        return core.known(identity) or run(core.process(payload, identity))

    def open(self) -> None:
        """Connect now instead of at the first call, and create what the store needs."""
        run(self._core.time())

    def settle(self, key: str, result: R) -> None:
        """Record manually that work whose outcome is unknown was done, with this result."""
        run(self._core.settle(key, result))

    def forget(self, key: str) -> bool:
        """Manually let work run again, whatever is recorded for it. False if nothing is."""
        return run(self._core.forget(key))

    def get(self, key: str) -> KeyState | None:
        """What is recorded of a key; None if nothing is."""
        return run(self._core.get(key))

    def list_unknown(self, limit: int = 100) -> list[KeyState]:
        """The keys of this scope whose outcome is unknown, as far as somebody has noticed: see `by_hand`."""
        return run(self._core.list_unknown(limit))

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> IdempotentProcessor[P, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
