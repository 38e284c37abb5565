"""Callers who go away, at every step: a key is unknown only if its work may have begun.

A gate stands before and behind each verb of a real store. The caller is cancelled (a task) or interrupted (a thread) at
one of them; then somebody else asks for the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotentProcessor,
    InMemoryStore,
    InProgress,
    NotDone,
    SQLiteStore,
    UnknownOutcome,
)
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.model import Record

T = TypeVar("T")
Gate = Callable[[], Awaitable[None]]
STEPS = 40


class GatedClaims:
    """The five verbs of a real store, with a gate before and behind each."""

    looks_first = True

    def __init__(self, claims: ClaimStore, gate: Gate) -> None:
        self._claims = claims
        self._gate = gate

    async def _gated(self, verb: Awaitable[T]) -> T:
        try:
            await self._gate()
        except BaseException:
            verb.close()  # type: ignore[attr-defined]
            raise
        result = await verb
        await self._gate()
        return result

    async def time(self) -> int:
        return await self._gated(self._claims.time())

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        return await self._gated(self._claims.claim(address, value, version=version, now=now))

    async def look(self, address: str, *, now: int) -> Record | None:
        return await self._gated(self._claims.look(address, now=now))

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        verb = self._claims.replace(address, value, expect=expect, now=now, expires_at=expires_at)
        return await self._gated(verb)

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        return await self._gated(self._claims.remove(address, expect=expect, now=now))

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        await self._gated(self._claims.note(address, value, now=now))

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        return await self._gated(self._claims.notes(after=after, limit=limit, now=now))

    async def strike(self, note: Record, *, now: int) -> None:
        await self._gated(self._claims.strike(note, now=now))


class Gated:
    """A store with gates."""

    database = tables = ""

    def __init__(self, store: IdempotencyStore, gate: Gate) -> None:
        self._store = store
        self._gate = gate

    def blocking(self) -> ClaimStore:
        return GatedClaims(self._store.blocking(), self._gate)

    def waiting(self) -> ClaimStore:
        return GatedClaims(self._store.waiting(), self._gate)

    def close(self) -> None:
        """Nothing of its own."""

    async def aclose(self) -> None:
        """Nothing of its own."""


class Work:
    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, _: object) -> str:
        self.runs += 1
        return "done"

    async def later(self, payload: object) -> str:
        return self(payload)


OPTIONS: dict[str, dict[str, Any]] = {
    "new": {},
    "free": {},
    "unknown, safe to repeat": {"safe_to_repeat": True},
    "unknown, resolved": {"resolve": lambda payload, unresolved: NotDone()},
}
KINDS = pytest.mark.parametrize("kind", OPTIONS)
PLACES = pytest.mark.parametrize("place", ["memory", "sqlite"])


def _store(place: str, tmp_path: Path) -> IdempotencyStore:
    return InMemoryStore() if place == "memory" else SQLiteStore(str(tmp_path / "idempotency.db"))


def _unsure(_: object) -> str:
    raise UnknownOutcome("at the beginning")


async def _unsure_later(_: object) -> str:
    raise UnknownOutcome("at the beginning")


@PLACES
@KINDS
async def test_a_task_that_is_cancelled_at_any_step_leaves_a_key_unknown_only_if_it_was(
    place: str, kind: str, tmp_path: Path
) -> None:
    store = _store(place, tmp_path)
    for target in range(STEPS):
        key, work = f"key {target}", Work()
        await _prepare(store, kind, key)
        gate = TaskGate(target)
        processor = AsyncIdempotentProcessor(Gated(store, gate), work.later, scope="cancelled", **OPTIONS[kind])
        task = asyncio.create_task(processor.process(1, key))
        await asyncio.wait((task, asyncio.create_task(gate.reached.wait())), return_when="FIRST_COMPLETED")
        task.cancel()
        await asyncio.sleep(0)
        gate.may_go.set()
        await asyncio.wait((task,))
        assert processor.waiting_keys == 0
        had_begun = work.runs == 1
        async with _asking(store, work) as ask:
            if had_begun or kind in ("new", "free"):
                assert (await ask(key)).was_replay == had_begun
                assert work.runs == 1
            else:
                with pytest.raises(UnknownOutcome, match="at the beginning"):
                    await ask(key)
        if not gate.reached.is_set():
            assert target > 5
            gate.reached.set()
            break
    else:
        pytest.fail(f"Expected fewer than {STEPS} steps")
    await store.aclose()


class TaskGate:
    """Stops at one of its passages until it may go on."""

    def __init__(self, target: int) -> None:
        self._passages = count()
        self._target = target
        self.reached = asyncio.Event()
        self.may_go = asyncio.Event()

    async def __call__(self) -> None:
        if next(self._passages) == self._target:
            self.reached.set()
            await self.may_go.wait()


async def _prepare(store: IdempotencyStore, kind: str, key: str) -> None:
    if kind == "free":
        done = AsyncIdempotentProcessor(store, Work().later, scope="cancelled")
        await done.process(1, key)
        await done.forget(key)
    elif kind != "new":
        with pytest.raises(UnknownOutcome):
            await AsyncIdempotentProcessor(store, _unsure_later, scope="cancelled").process(1, key)


@asynccontextmanager
async def _asking(store: IdempotencyStore, work: Work) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    plain = AsyncIdempotentProcessor(store, work.later, scope="cancelled", wait_seconds=0)
    yield lambda key: plain.process(1, key)


@PLACES
@KINDS
def test_a_thread_that_is_interrupted_at_any_step_leaves_a_key_unknown_only_if_its_work_may_have_begun(
    place: str, kind: str, tmp_path: Path
) -> None:
    store = _store(place, tmp_path)
    for target in range(STEPS):
        key, work = f"key {target}", Work()
        _prepare_blocking(store, kind, key)
        gate = ThreadGate(target)
        processor = IdempotentProcessor(Gated(store, gate), work, scope="cancelled", **OPTIONS[kind])
        with _perhaps_interrupted():
            processor.process(1, key)
        assert processor.waiting_keys == 0
        plain = IdempotentProcessor(store, work, scope="cancelled", wait_seconds=0)
        if work.runs == 1:  # begun, and interrupted before or after its outcome was recorded
            try:
                assert plain.process(1, key).was_replay
            except (InProgress, UnknownOutcome):
                assert gate.is_reached
        elif kind in ("new", "free"):
            assert plain.process(1, key).result == "done"
        else:
            with pytest.raises(UnknownOutcome, match="at the beginning"):
                plain.process(1, key)
        assert work.runs <= 1
        if not gate.is_reached:
            assert target > 5
            break
    else:
        pytest.fail(f"Expected fewer than {STEPS} steps")
    store.close()


class ThreadGate:
    """Raises what Ctrl-C raises at one of its passages."""

    def __init__(self, target: int) -> None:
        self._passages = count()
        self._target = target
        self.is_reached = False

    async def __call__(self) -> None:
        if next(self._passages) == self._target:
            self.is_reached = True
            raise KeyboardInterrupt


@contextmanager
def _perhaps_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        return


def _prepare_blocking(store: IdempotencyStore, kind: str, key: str) -> None:
    if kind == "free":
        done = IdempotentProcessor(store, Work(), scope="cancelled")
        done.process(1, key)
        done.forget(key)
    elif kind != "new":
        with pytest.raises(UnknownOutcome):
            IdempotentProcessor(store, _unsure, scope="cancelled").process(1, key)


async def test_a_caller_that_is_cancelled_twice_still_records_what_was_done() -> None:
    store = InMemoryStore()
    gate = TaskGate(0)
    work = Work()

    async def then_gated(payload: object) -> str:
        gates.append(gate)
        return work(payload)

    gates: list[TaskGate] = []

    async def passage() -> None:
        if gates:
            await gate()

    processor = AsyncIdempotentProcessor(Gated(store, passage), then_gated, scope="cancelled")
    task = asyncio.create_task(processor.process(1))
    await gate.reached.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    gate.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await AsyncIdempotentProcessor(store, work.later, scope="cancelled").process(1)).was_replay
    assert work.runs == 1


class TaskGateOfAnOutage(TaskGate):
    """Whoever may go on finds the store gone."""

    async def __call__(self) -> None:
        if self.may_go.is_set():
            raise StoreUnavailable("gone")
        await super().__call__()


class ThreadGateOfAnOutage(ThreadGate):
    async def __call__(self) -> None:
        if self.is_reached:
            raise StoreUnavailable("gone")
        await super().__call__()


BEFORE_WORK = pytest.mark.parametrize("target", range(6))
"""Before and behind each of: time, look, claim."""


@BEFORE_WORK
async def test_a_task_that_is_cancelled_while_the_store_goes_away_hears_of_its_cancellation(target: int) -> None:
    work, gate = Work(), TaskGateOfAnOutage(target)
    processor = AsyncIdempotentProcessor(Gated(InMemoryStore(), gate), work.later, scope="cancelled")
    task = asyncio.create_task(processor.process(1))
    await gate.reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    gate.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (work.runs, processor.waiting_keys) == (0, 0)


@BEFORE_WORK
def test_a_thread_that_is_interrupted_while_the_store_goes_away_hears_of_its_interruption(target: int) -> None:
    work = Work()
    gated = Gated(InMemoryStore(), ThreadGateOfAnOutage(target))
    processor = IdempotentProcessor(gated, work, scope="cancelled")
    with pytest.raises(KeyboardInterrupt):
        processor.process(1)
    assert (work.runs, processor.waiting_keys) == (0, 0)
