"""A simulated database: an actor of its own, which neither dies nor hurries with those who ask it.

A request *arrives*, is *committed* and is *answered* at three drawn instants; whoever asked may have given up by then,
or be dead: it is committed all the same. Requests of one instance that arrive together share a transaction. It fails in
*regimes* (`plan.Regime`): for a while, in one way, for everybody or for an instance, a verb or a single shard, whose
items then have a verdict of their own. Every write that takes effect is told to the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from mainspring import crashpoint
from mainspring.errors import StoreUnavailable
from mainspring.kernel.ownership import INSTANCES
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import START, Begin, DuePage, Finish, Position, Put, Remove, TimerFilter, Verdict
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    Change,
    Claim,
    DeleteRecord,
    FinishAttempts,
    PruneHistory,
    PutRecord,
    Release,
    Write,
)
from mainspring.testing.oracle.journal import AnyEvent, Fault
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.commits import commits_of
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.plan import Regime, World
from mainspring.testing.simulation.tables import RowKey, Tables

T = TypeVar("T")

OPERATION: Final[ContextVar[str]] = ContextVar("operation", default="")
"""The client's operation on whose behalf something is asked."""
FOREIGN: Final = "foreign"
"""Who writes in a transaction of its own."""


class Caller(Protocol):
    """Who asks."""

    @property
    def name(self) -> str: ...
    @property
    def index(self) -> int: ...


class Foreigner:
    """Who writes without being an instance."""

    name = FOREIGN
    index = -1


class _Lane:
    """Requests that will share a transaction."""

    def __init__(self) -> None:
        self.waiting: list[_Part] = []
        self.is_planned = False


class _Part:
    """What of a request is committed at once, and whom that is told."""

    __slots__ = ("asked_at", "caller", "done", "operation", "request")

    def __init__(
        self, caller: Caller, request: Change, *, asked_at: int, operation: str, done: Callable[[], None]
    ) -> None:
        self.caller = caller
        self.request = request
        self.asked_at = asked_at
        self.operation = operation
        self.done = done


class Database:
    """What all instances of a run share."""

    def __init__(
        self,
        loop: SimulatedLoop,
        tables: Tables,
        world: World,
        draws: Draws,
        *,
        journal: list[AnyEvent],
        reached: Callable[[Caller, str], None],
        sometimes: Callable[[str], None],
    ) -> None:
        """`reached` is told of crash points of a caller, `sometimes` of what should happen sometimes."""
        self._loop = loop
        self.tables = tables
        self._world = world
        self._draws = draws
        self._journal = journal
        self._reached = reached
        self._sometimes = sometimes
        self._context = context_of(Process("store"))
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self.regimes: list[Regime] = []
        """Those in force."""
        self.locked: dict[RowKey, int] = {}
        """Rows that a foreign transaction holds, with how many of them do."""
        self.step_ms = world.starts_ms
        """By how much the database's clock is ahead of the run's: when it starts, and what it has stepped since."""
        self.foreign_writes = 0
        self.closed = False
        self.healed = False
        """From then on there are no spikes."""
        self.written_at = 0
        """When the last row was changed."""

    def now_ms(self) -> int:
        return EPOCH_MS + self.step_ms + self._loop.now_us // 1000

    # --- reads ----------------------------------------------------------------------------------------------

    async def read(self, caller: Caller, verb: str, read: Callable[[], T], shards: Sequence[int] = ()) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        arrives, commits, answers = self._legs(caller, verb)
        regime = self._regime(caller, verb, shards)
        if regime == "refuse":
            self._after(arrives, self._fail, future, "refused")
        elif regime in ("hang", "late"):
            self._give_up(future)
        else:
            self._after(arrives + commits, self._read, future, read, answers, regime == "lose")
            self._give_up(future, arrives + commits + answers)
        return await self._answer(future)

    def _read(self, future: asyncio.Future[T], read: Callable[[], T], answers: int, lost: bool) -> None:
        if lost:
            self._answer_after(answers, self._fail, future, "the answer was lost")
        else:
            self._answer_after(answers, self._tell, future, read())

    async def per_shard(
        self, caller: Caller, verb: str, shard_ids: Sequence[int], read: Callable[[Sequence[int]], list[T]], missing: T
    ) -> list[T]:
        """A read of many shards, with `missing` for those that cannot be asked."""
        bad = {shard_id for shard_id in shard_ids if self._shard_regime(caller, verb, shard_id) is not None}
        if bad and len(bad) == len(shard_ids):
            return await self.read(caller, verb, lambda: read(shard_ids), shard_ids)
        found = await self.read(caller, verb, lambda: read(shard_ids))
        return [missing if shard_id in bad else one for shard_id, one in zip(shard_ids, found, strict=True)]

    # --- writes ---------------------------------------------------------------------------------------------

    async def change(self, caller: Caller, verb: str, lane: str, request: Change) -> None:
        """Have a request decided and committed; it has its answer afterwards."""
        future: asyncio.Future[None] = self._loop.create_future()
        arrives, commits, answers = self._legs(caller, verb)
        regime = self._regime(caller, verb)
        asked_at = self._loop.now_us
        operation = OPERATION.get()
        answer = partial(self._answer_after, answers, self._tell, future, None)
        if regime == "lose":
            self._sometimes(f"{verb}: answer lost")
            answer = partial(self._answer_after, answers, self._fail, future, "the answer was lost")
        if regime == "refuse":
            self._after(arrives, self._fail, future, "refused")
        elif regime == "hang":
            self._give_up(future)
        else:
            if regime == "late":
                late = self._late(caller, verb)
                arrives += late
                answer = _nobody
            certain = regime != "late" and not self.regimes and not self.locked
            self._give_up(future, 2 * (arrives + commits + answers) if certain else None)
            part = partial(_Part, caller, asked_at=asked_at, operation=operation)
            self._after(arrives, self._arrive, part, request, lane, commits, verb, answer, future)
        await self._answer(future)

    def _arrive(
        self,
        part: Callable[..., _Part],
        request: Change,
        lane: str,
        commits: int,
        verb: str,
        answer: Callable[[], object],
        future: asyncio.Future[None],
    ) -> None:
        whole = part(request=request, done=answer)
        if not isinstance(request, Batch):
            self._join(lane, whole, commits)
            return
        faults = [self._item_fault(whole.caller, verb, item) for item in request.items]
        if not any(faults):
            self._join(lane, whole, commits)
            return
        self._sometimes("one bad shard in a batch" if not all(faults) else "a bad shard")
        self._arrive_in_parts(part, request, faults, lane, commits, answer, future)

    def _arrive_in_parts(
        self,
        part: Callable[..., _Part],
        request: Batch[Any],
        faults: list[str | None],
        lane: str,
        commits: int,
        answer: Callable[[], object],
        future: asyncio.Future[None],
    ) -> None:
        """Items of shards that are well go on; the others have a verdict of their own, whatever becomes of them."""
        now = [place for place, fault in enumerate(faults) if fault in (None, "lose")]
        later = [place for place, fault in enumerate(faults) if fault == "late"]
        verdicts = [Verdict.UNAVAILABLE] * len(faults)
        current = type(request)([request.items[place] for place in now])

        def done() -> None:
            for place, verdict in zip(now, current.answer, strict=True):
                if faults[place] is None:
                    verdicts[place] = verdict
            request.answer = verdicts
            if "hang" in faults or "late" in faults:
                wait = max(0, part_asked + self._world.store_timeout * 1000 - self._loop.now_us)
                self._after(wait, answer)
            else:
                answer()

        first = part(request=current, done=done)
        part_asked = first.asked_at
        if now:
            self._join(lane, first, commits)
        else:
            current.answer = []
            done()
        if later:
            rest = part(request=type(request)([request.items[place] for place in later]), done=_nobody)
            self._after(self._late(rest.caller, lane), self._join, lane, rest, commits)

    def _join(self, name: str, part: _Part, commits: int) -> None:
        lane = self._lanes.setdefault((part.caller.name, name), _Lane())
        lane.waiting.append(part)
        if not lane.is_planned:
            lane.is_planned = True
            self._after(commits, self._commit, lane)

    def _commit(self, lane: _Lane) -> None:
        lane.is_planned = False
        group, lane.waiting = lane.waiting, []
        caller = group[0].caller
        self._reached(caller, crashpoint.BEFORE_COMMIT)
        before = self._rows_of(group)
        versions = self._versions_of(group)
        self.tables.work([part.request for part in group])
        at = self._loop.now_us
        for part in group:
            for event in commits_of(
                part.request,
                at=at,
                node="" if part.caller.name == FOREIGN else part.caller.name,
                rows=before,
                versions=versions,
                asked_at=part.asked_at,
                operation=part.operation,
                sometimes=self._sometimes,
            ):
                self._journal.append(event)
                if event.verb in ("write", "begin", "finish"):
                    self.written_at = at
        self._reached(caller, crashpoint.AFTER_COMMIT)
        if caller.name == FOREIGN:
            self.foreign_writes += 1
        for part in group:
            part.done()

    def commit_now(self, caller: Caller, request: Change, operation: str) -> None:
        """A write of somebody who holds the locks already."""
        lane = _Lane()
        lane.waiting.append(_Part(caller, request, asked_at=self._loop.now_us, operation=operation, done=_nobody))
        self._commit(lane)

    def _rows_of(self, group: list[_Part]) -> dict[RowKey, Timer]:
        keys: dict[TimerKey, None] = {}
        for part in group:
            if isinstance(part.request, Write | BeginAttempts | FinishAttempts):
                keys.update(dict.fromkeys(map(_key_of, part.request.items)))
        return {(row.shard_id, row.uuid): row for row in self.tables.get(list(keys)) if row is not None}

    def _versions_of(self, group: list[_Part]) -> dict[int, int]:
        shards = {
            _shard_of(item): None for part in group if isinstance(part.request, Batch) for item in part.request.items
        }
        return {shard.shard_id: shard.version for shard in self.tables.shards(list(shards))}

    # --- faults ---------------------------------------------------------------------------------------------

    def _regime(self, caller: Caller, verb: str, shards: Sequence[int] = ()) -> str | None:
        """What befalls a whole request; of reads of one shard, or of all of them together, also by their shards."""
        for regime in self.regimes:
            of_shards = regime.shard is None or regime.shard in shards
            if regime.node in (None, caller.index) and regime.verb in (None, verb) and of_shards:
                return regime.kind
        return None

    def _shard_regime(self, caller: Caller, verb: str, shard_id: int) -> str | None:
        for regime in self.regimes:
            if regime.shard == shard_id and regime.node in (None, caller.index) and regime.verb in (None, verb):
                return regime.kind
        return None

    def _item_fault(self, caller: Caller, verb: str, item: Put | Remove | Begin | Finish | Shard) -> str | None:
        if self.locked and not isinstance(item, Shard):
            key = _key_of(item)
            if (key.shard_id, key.uuid) in self.locked and caller.name != FOREIGN:
                return "refuse"
        return self._shard_regime(caller, verb, _shard_of(item)) if self.regimes else None

    def _late(self, caller: Caller, verb: str) -> int:
        """How long after its time something lands; told as a fault, because it ends later than its regime."""
        self._sometimes(f"{verb}: landed late")
        span = self._world.store_timeout * 1000 + round(self._world.lease_seconds * 3_000_000)
        late = self._world.store_timeout * 1000 // 2 + self._draws.draw(f"late/{caller.name}/{verb}", span)
        now = self._loop.now_us
        self._journal.append(Fault(at=now, until=now + late, kind="store", node=caller.name, mode="late"))
        return late

    def _legs(self, caller: Caller, verb: str) -> tuple[int, int, int]:
        """Microseconds until a request arrives, from then to its commit, and from that to its answer."""
        drawn = self._draws.draw(f"store/{caller.name}/{verb}", 1 << 30)
        most = self._world.latency * 1000
        legs = [(drawn >> shift & 1023) * most // 3069 for shift in (0, 10, 20)]
        if self._world.spikes and not self.healed and self._draws.chance(f"spike/{caller.name}/{verb}", 1):
            legs = [50 * leg for leg in legs]
            now = self._loop.now_us
            self._journal.append(Fault(at=now, until=now + sum(legs), kind="store", node=caller.name, mode="slow"))
        return legs[0], legs[1], legs[2]

    # --- answers --------------------------------------------------------------------------------------------

    def _answer_after(self, microseconds: int, act: Callable[..., object], *args: object) -> None:
        if microseconds:
            self._after(microseconds, act, *args)
        else:
            act(*args)

    def _after(self, microseconds: int, act: Callable[..., object], *args: object) -> None:
        self._loop.call_at_us(self._loop.now_us + microseconds, act, *args, context=self._context)

    def _give_up(self, future: asyncio.Future[Any], takes: int | None = None) -> None:
        """When the caller does; not even thought of for what `takes` less time than that."""
        patience = self._world.store_timeout * 1000
        if takes is None or takes >= patience:
            self._after(patience, self._fail, future, "no answer came in time")

    async def _answer(self, future: asyncio.Future[T]) -> T:
        if self.closed:
            raise StoreUnavailable("simulated: the run is over")
        return await future

    @staticmethod
    def _tell(future: asyncio.Future[T], answer: T) -> None:
        if not future.done():
            future.set_result(answer)

    @staticmethod
    def _fail(future: asyncio.Future[Any], reason: str) -> None:
        if not future.done():
            future.set_exception(StoreUnavailable(f"simulated: {reason}"))


class SimulatedStore:
    """A `Store`: the connection of one instance to the database."""

    def __init__(self, database: Database, caller: Caller) -> None:
        self._database = database
        self._tables = database.tables
        self._caller = caller

    async def open(self) -> None:
        """The tables are there."""

    async def close(self) -> None:
        """Nothing is kept open."""

    async def time(self) -> int:
        return await self._database.read(self._caller, "time", self._database.now_ms)

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        return await self._change("write", "users", Write(changes))

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._change("begin", "engine", BeginAttempts(items))

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._change("finish", "engine", FinishAttempts(items))

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        shards = list(dict.fromkeys(key.shard_id for key in keys))
        return await self._read("get", lambda: self._tables.get(keys), shards)

    async def list_timers(
        self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int
    ) -> list[Timer]:
        return await self._read(
            "list", lambda: self._tables.list_timers(shards, where, after=after, limit=limit), shards
        )

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return await self._read(
            "load_due", lambda: self._tables.load_due(shard_id, until=until, after=after, limit=limit), [shard_id]
        )

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._database.per_shard(self._caller, "next_due", shard_ids, self._tables.next_due, START.due_at)

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._read(
            "history", lambda: self._tables.history(key, before=before, limit=limit), [key.shard_id]
        )

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        victims = await self._read(
            "history", lambda: self._tables.old_history(shard_id, older_than=older_than, limit=limit), [shard_id]
        )
        request = PruneHistory(victims)
        await self._database.change(self._caller, "prune", "records", request)
        return request.answer

    # Shards

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        def read(shard_ids: Sequence[int]) -> list[Shard | None]:
            return list(self._tables.shards(shard_ids))

        return await self._database.per_shard(self._caller, "shards", shard_ids, read, None)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._change("claim", "shards", Claim(claims))

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._change("release", "shards", Release(claims))

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return await self._read("get_record", lambda: self._tables.get_record(collection, key, now=now))

    async def put_record(
        self, collection: str, key: str, value: bytes, *, expect: int, now: int, expires_at: int | None = None
    ) -> Record | None:
        request = PutRecord((collection, key), Record(key, value, expect + 1, expires_at), now=now)
        verb = "renew" if collection == INSTANCES else "record"
        await self._database.change(self._caller, verb, "records", request)
        return request.answer

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        request = DeleteRecord((collection, key), expect=expect, now=now)
        await self._database.change(self._caller, "record", "records", request)
        return request.answer

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._read(
            "scan", lambda: self._tables.scan_records(collection, now=now, after=after, limit=limit)
        )

    # --- asking ---------------------------------------------------------------------------------------------

    async def _read(self, verb: str, read: Callable[[], T], shards: Sequence[int] = ()) -> T:
        return await self._database.read(self._caller, verb, read, shards)

    async def _change(self, verb: str, lane: str, request: Batch[Any]) -> list[Verdict]:
        if not request.items:
            return []
        await self._database.change(self._caller, verb, lane, request)
        return request.answer


class NoticingStore(SimulatedStore):
    """One that also tells of foreign writers."""

    async def foreign_writes(self) -> int:
        return await self._read("foreign_writes", lambda: self._database.foreign_writes)


class LookingStore(SimulatedStore):
    """For whoever looks at what is there: answers at once, and nothing befalls it."""

    async def _read(self, verb: str, read: Callable[[], T], shards: Sequence[int] = ()) -> T:
        return read()


def _nobody() -> None:
    """Nobody is told."""


def _key_of(item: Put | Remove | Begin | Finish) -> TimerKey:
    return item.timer.key if isinstance(item, Put) else item.key


def _shard_of(item: Put | Remove | Begin | Finish | Shard) -> int:
    return item.shard_id if isinstance(item, Shard) else _key_of(item).shard_id
