"""A simulated database: an actor of its own, which neither dies nor hurries with its callers.

A request *arrives*, is *committed* and is *answered* at three drawn instants; whoever asked may have given up by then,
or be dead: it is committed all the same. Requests of one instance that arrive together share a transaction. The
database fails in *regimes* (`plan.Regime`): for a while, in one way, for everybody or for an instance, a verb or a
single shard, whose items then have a verdict of their own. Every write that takes effect is recorded in the journal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from mainspring import crashpoint
from mainspring.errors import StoreUnavailable
from mainspring.model import Shard, Timer, TimerKey
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    Change,
    FinishAttempts,
    Write,
)
from mainspring.testing.oracle.journal import AnyEvent, Commit, Fault
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.commits import Commits
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.plan import Regime, World
from mainspring.testing.simulation.tables import RowKey, Tables

T = TypeVar("T")

OPERATION: Final[ContextVar[str]] = ContextVar("operation", default="")
"""The client's operation on whose behalf something is asked."""
FOREIGN: Final = "foreign"
"""Somebody who writes in a transaction of their own."""


class Caller(Protocol):
    """Who asks."""

    @property
    def name(self) -> str: ...
    @property
    def index(self) -> int: ...


class _Queue:
    """Requests that will share a transaction."""

    def __init__(self) -> None:
        self.waiting: list[_Part] = []
        self.is_planned = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked, by whom, and what is still to happen to it."""

    caller: Caller
    verb: str
    queue: str
    at: int
    operation: str
    commits: int
    """Microseconds from its arrival to its commit, unless it joins others."""
    answer: Callable[[], object]
    is_heard: bool = True
    """Whether the caller will know that it was done."""


class _Part(NamedTuple):
    """The part of a request that is committed at once, and who is told then."""

    asked: _Asked
    request: Change
    done: Callable[[], object]


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
        committed: Callable[[Commit], None] = lambda _: None,
    ) -> None:
        """`reached` is told about crash points of a caller, `sometimes` about what should happen sometimes, `committed`
        about every write that took effect, before its caller is."""
        self._loop = loop
        self.tables = tables
        self._world = world
        self._draws = draws
        self._journal = journal
        self._reached = reached
        self._sometimes = sometimes
        self._committed = committed
        self._context = context_of(Process("store"))
        self._queues: dict[tuple[str, str], _Queue] = {}
        self.regimes: list[Regime] = []
        """Those in force."""
        self.locked: dict[RowKey, int] = {}
        """Rows that foreign transactions hold, and how many of them do."""
        self.step_ms = world.starts_ms
        """By how much the database's clock is wrong."""
        self._commits: Counter[str] = Counter()
        self.closed = False
        self.calm = True
        """Before the first instance starts and after healing: there are no spikes."""
        self.written_at = 0
        """When the last row was changed."""

    def foreign_writes(self, caller: Caller) -> int:
        """How often others have committed something, including those before it."""
        return self._commits.total() - self._commits[caller.name]

    @contextmanager
    def holding(self, row: RowKey) -> Iterator[None]:
        """A foreign transaction holds a row for as long as the block lasts."""
        self.locked[row] = self.locked.get(row, 0) + 1
        try:
            yield
        finally:
            self.locked[row] -= 1
            if not self.locked[row]:
                del self.locked[row]

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

    async def change(self, caller: Caller, verb: str, queue: str, request: Change) -> None:
        """Have a request decided and committed; it has its answer afterwards."""
        future: asyncio.Future[None] = self._loop.create_future()
        arrives, commits, answers = self._legs(caller, verb)
        regime = self._regime(caller, verb)
        answer: Callable[[], object] = partial(self._answer_after, answers, self._tell, future, None)
        if regime == "lose":
            self._sometimes(f"{verb}: answer lost")
            answer = partial(self._answer_after, answers, self._fail, future, "the answer was lost")
        elif regime == "late":
            arrives += self._late(caller, verb)
            answer = _nobody
        if regime == "refuse":
            self._after(arrives, self._fail, future, "refused")
        elif regime == "hang":
            self._give_up(future)
        else:
            certain = regime != "late" and not self.regimes and not self.locked
            self._give_up(future, 2 * (arrives + commits + answers) if certain else None)
            asked = _Asked(
                caller, verb, queue, self._loop.now_us, OPERATION.get(), commits, answer, is_heard=regime is None
            )
            self._after(arrives, self._arrive, asked, request)
        await self._answer(future)

    def _arrive(self, asked: _Asked, request: Change) -> None:
        faults: list[str | None] = []
        if isinstance(request, Batch) and (self.regimes or self.locked):
            faults = [self._item_fault(asked.caller, asked.verb, item) for item in request.items]
        if isinstance(request, Batch) and any(faults):
            self._sometimes("one bad shard in a batch" if not all(faults) else "a bad shard")
            self._arrive_in_parts(asked, request, faults)
        else:
            self._join(_Part(asked, request, asked.answer))

    def _arrive_in_parts(self, asked: _Asked, request: Batch[Any], faults: list[str | None]) -> None:
        """Items of healthy shards go on; the others have a verdict of their own, whatever becomes of them."""
        now = [place for place, fault in enumerate(faults) if fault in (None, "lose")]
        later = [place for place, fault in enumerate(faults) if fault == "late"]
        current = _part_of(request, now)

        def done() -> None:
            verdicts = [Verdict.UNAVAILABLE] * len(faults)
            for place, verdict in zip(now, current.answer, strict=True):
                if faults[place] is None:
                    verdicts[place] = verdict
            request.answer = verdicts
            if Verdict.UNAVAILABLE in verdicts:
                self._sometimes(f"{asked.verb} unavailable")
            patience = asked.at + self._world.store_timeout * 1000 - self._loop.now_us
            waits = "hang" in faults or "late" in faults
            self._answer_after(max(0, patience) if waits else 0, asked.answer)

        if now:
            self._join(_Part(replace(asked, is_heard=asked.is_heard and "lose" not in faults), current, done))
        else:
            current.answer = []
            done()
        if later:
            rest = _Part(asked, _part_of(request, later), _nobody)
            self._after(self._late(asked.caller, asked.verb), self._join, rest)

    def _join(self, part: _Part) -> None:
        queue = self._queues.setdefault((part.asked.caller.name, part.asked.queue), _Queue())
        queue.waiting.append(part)
        if not queue.is_planned:
            queue.is_planned = True
            self._after(part.asked.commits, self._commit, queue)

    def _commit(self, queue: _Queue) -> None:
        queue.is_planned = False
        group, queue.waiting = queue.waiting, []
        caller = group[0].asked.caller
        self._reached(caller, crashpoint.BEFORE_COMMIT)
        rows, versions = self._rows_of(group), self._versions_of(group)
        commits = Commits(rows, versions, at=self._loop.now_us, sometimes=self._sometimes)
        self.tables.work([part.request for part in group])
        node = "" if caller.name == FOREIGN else caller.name
        for part in group:
            asked = part.asked
            for event in commits.of(part.request, node=node, asked_at=asked.at, operation=asked.operation):
                self._journal.append(event)
                self._committed(event)
                if event.verb in ("write", "begin", "finish"):
                    self.written_at = event.at
        self._reached(caller, crashpoint.AFTER_COMMIT)
        # What nobody heard about was done on a connection that is no longer the caller's: it counts as somebody else's.
        heard = all(part.asked.is_heard and part.done is not _nobody for part in group)
        self._commits[caller.name if heard else ""] += 1
        for part in group:
            part.done()

    def commit_now(self, caller: Caller, request: Change, operation: str) -> None:
        """A write of somebody who holds the locks already."""
        queue = _Queue()
        asked = _Asked(caller, "write", "", self._loop.now_us, operation, 0, _nobody)
        queue.waiting.append(_Part(asked, request, _nobody))
        self._commit(queue)

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
        """What befalls a whole request; reads of one shard, or of all together, may be hit through their shards."""
        for regime in self.regimes:
            if (regime.shard is None or regime.shard in shards) and self._befalls(regime, caller, verb):
                return regime.kind
        return None

    def _shard_regime(self, caller: Caller, verb: str, shard_id: int) -> str | None:
        for regime in self.regimes:
            if regime.shard == shard_id and self._befalls(regime, caller, verb):
                return regime.kind
        return None

    def _befalls(self, regime: Regime, caller: Caller, verb: str) -> bool:
        if regime.node not in (None, caller.index) or regime.verb not in (None, verb):
            return False
        return regime.percent == 100 or self._draws.chance(f"single/{caller.name}/{verb}", regime.percent)

    def _item_fault(self, caller: Caller, verb: str, item: Put | Remove | Begin | Finish | Shard) -> str | None:
        if self.locked and not isinstance(item, Shard):
            key = _key_of(item)
            if (key.shard_id, key.uuid) in self.locked and caller.name != FOREIGN:
                return "refuse"
        return self._shard_regime(caller, verb, _shard_of(item)) if self.regimes else None

    def _late(self, caller: Caller, verb: str) -> int:
        """How long after its time something lands; recorded as a fault, because it ends later than its regime."""
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
        if self._world.spikes and not self.calm and self._draws.chance(f"spike/{caller.name}/{verb}", 1):
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
        """Fail it when its caller gives up; not even scheduled for what `takes` less time than that."""
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


def _nobody() -> None:
    """Nobody is told."""


def _part_of(request: Batch[Any], places: list[int]) -> Any:
    """The same request, of some of its items only."""
    return type(request)([request.items[place] for place in places])


def _key_of(item: Put | Remove | Begin | Finish) -> TimerKey:
    return item.timer.key if isinstance(item, Put) else item.key


def _shard_of(item: Put | Remove | Begin | Finish | Shard) -> int:
    return item.shard_id if isinstance(item, Shard) else _key_of(item).shard_id
