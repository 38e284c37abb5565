"""Runs units: loads an origin, has a function work on a copy in a thread, and commits what came of it in one write.

    load ──▶ run in a thread ──▶ keep the fetches asked for ──▶ compare and set
     ▲                                                              │
     └──────────────── somebody else was faster ◀───────────────────┘

In one program the units of an origin run one after another; between programs the version of the record decides. A
thread cannot be stopped: one that is given up keeps its origin waiting until it ends, and commits nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from msgspec import Struct

from mainspring import crashpoint
from mainspring.clock import Clock
from mainspring.errors import Conflict
from mainspring.fetches.messages import CreateFetch
from mainspring.model import Record
from mainspring.origins.document import ORIGINS, OriginDocument, State, read, write
from mainspring.origins.origin import Origin, Unit
from mainspring.origins.outbox import Kept, Outbox
from mainspring.origins.services import Services
from mainspring.store import RecordStore

R = TypeVar("R")
O = TypeVar("O", bound=Origin)  # noqa: E741 - an origin

THREADS: Final = 32
"""Units that run at once, in all."""
TRIES: Final = 20
"""How often a unit is run if others change its origin each time."""
_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.5


class Done(Struct, Generic[R], frozen=True):
    """A unit that is committed. `kept` are the fetches that are now to be created."""

    value: R
    kept: Kept | None


class _Turn:
    """Who is working on an origin, and who is waiting to."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.thread: asyncio.Future[None] | None = None


class Units:
    def __init__(
        self,
        *,
        records: RecordStore,
        clock: Clock,
        outbox: Outbox,
        services: Services,
        check: Callable[[CreateFetch], None],
    ) -> None:
        self._records = records
        self._clock = clock
        self._outbox = outbox
        self._services = services
        self._check = check
        self._turns: dict[str, _Turn] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mainspring-origin")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, kind: type[O], origin_id: str, work: Callable[[O], R], *, consumes: str = "") -> Done[R] | None:
        """Commit what `work` makes of the origin. Whatever it raises is raised, and nothing is changed.

        With `consumes`, the result of that reqId is consumed by the same write; None if it had been consumed before.
        """
        key = _key(kind, origin_id)
        async with self._turn(key) as turn:
            for attempt in range(TRIES):
                record = await self._load(key)
                document = read(record)
                if consumes and document.waiting.pop(consumes, None) is None:
                    return None
                unit = Unit(origin_id, State(document.state), self._services, self._check)
                value = await self._in_thread(turn, lambda unit=unit: work(kind(unit)))  # type: ignore[misc]
                crashpoint.reach(crashpoint.ORIGIN_HANDLED)
                committed, kept = await self._commit(kind, unit, document, record)
                if committed:
                    return Done(value, kept)
                await asyncio.sleep(_pause(attempt))
        raise Conflict(f"Origin {key} was changed by others {TRIES} times in a row")

    async def waiting(self, kind: type[Origin], origin_id: str) -> dict[str, int]:
        """The reqIds whose results the origin waits for, and since when."""
        record = await self._load(_key(kind, origin_id))
        return read(record).waiting

    async def state(self, kind: type[Origin], origin_id: str) -> State:
        """A copy of the state as it stands."""
        record = await self._load(_key(kind, origin_id))
        return State(read(record).state)

    async def fence(self, kind: type[Origin], origin_id: str) -> set[str]:
        """Write the record as it is: no unit that has read it before can commit afterwards.

        Returns the reqIds that the origin is then waiting for.
        """
        key = _key(kind, origin_id)
        for attempt in range(TRIES):
            record = await self._load(key)
            document = read(record)
            if await self._put(key, write(document, key), record):
                return set(document.waiting)
            await asyncio.sleep(_pause(attempt))
        raise Conflict(f"Origin {key} was changed by others {TRIES} times in a row")

    async def _commit(
        self, kind: type[Origin], unit: Unit, document: OriginDocument, record: Record | None
    ) -> tuple[bool, Kept | None]:
        """Whether it was committed, and the fetches that are then to be created."""
        key = _key(kind, unit.origin_id)
        now = self._clock.now_ms()
        document.waiting.update((str(fetch.req_id), now) for fetch in unit.fetches)
        value = write(document, key)
        if value == (record.value if record is not None else write(OriginDocument(), key)):
            return True, None  # a unit that only looked
        kept = None
        if unit.fetches:
            kept = await self._outbox.keep(kind.origin_name, unit.origin_id, unit.fetches)
            crashpoint.reach(crashpoint.ORIGIN_KEPT)
        if await self._put(key, value, record):
            crashpoint.reach(crashpoint.ORIGIN_COMMITTED)
            return True, kept
        if kept is not None:
            await self._outbox.remove(kept)
        return False, None

    async def _load(self, key: str) -> Record | None:
        return await self._records.get_record(ORIGINS, key, now=self._clock.now_ms())

    async def _put(self, key: str, value: bytes, record: Record | None) -> bool:
        expect = 0 if record is None else record.version
        put = await self._records.put_record(ORIGINS, key, value, expect=expect, now=self._clock.now_ms())
        return put is not None

    # --- turns and threads ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[_Turn]:
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        held = False

        def leave(_: object = None) -> None:
            if held:
                turn.lock.release()
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

        try:
            held = await turn.lock.acquire()
            yield turn
        finally:
            if held and turn.thread is not None and not turn.thread.done():
                turn.thread.add_done_callback(leave)
            else:
                leave()

    async def _in_thread(self, turn: _Turn, work: Callable[[], R]) -> R:
        value: list[R] = []

        def run() -> None:
            try:
                value.append(work())
            except StopIteration as error:  # no future can hold it
                raise RuntimeError("Expected a method that returns or raises, got StopIteration") from error

        turn.thread = asyncio.get_running_loop().run_in_executor(self._threads, run)
        await asyncio.shield(turn.thread)
        return value[0]


def _key(kind: type[Origin], origin_id: str) -> str:
    return f"{kind.origin_name}/{origin_id}"


def _pause(attempt: int) -> float:
    return random.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt))
