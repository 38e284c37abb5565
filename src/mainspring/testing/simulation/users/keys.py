"""Programs that do their work once for each key, and hold locks; their callers write down what they are told.

Work is an effect in the journal: it begins, takes its time, and is done, fails or is cancelled. What a holder of a lock
writes goes through `held.records`, and is an effect, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from mainspring.clock import follow
from mainspring.errors import LockLost, MainspringError, StoreUnavailable
from mainspring.idempotency.core import Processor
from mainspring.idempotency.errors import InProgress, KeyReuse
from mainspring.idempotency.loops import LoopModel
from mainspring.idempotency.record import NotDone, Resolved, Unresolved
from mainspring.idempotency.stores.records import RecordsStore
from mainspring.locks import Held, Lock
from mainspring.store import first_version
from mainspring.testing.oracle import journal as told
from mainspring.testing.oracle.journal import AnyEvent, Asked, Effect, Fail, Info, Invoke, Ok, View
from mainspring.testing.simulation.clock import SimulatedClock
from mainspring.testing.simulation.database import Database
from mainspring.testing.simulation.draws import Dice, Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.node import Inhabitant
from mainspring.testing.simulation.plan import Operation, World
from mainspring.testing.simulation.store import SimulatedStore

SCOPE: Final = "simulated"
LEDGER: Final = "ledger"
"""The collection that holders of locks write to."""
CALLS: Final = frozenset({"call", "other", "cancelled", "failing"})
REFUSED: Final = (KeyReuse, InProgress)

_OPERATION: Final[ContextVar[tuple[str, Operation]]] = ContextVar("idempotent operation")


class Failed(Exception):
    """Work says that it was not done."""


class Ledger:
    """What has really become of work: in the journal, and for programs that ask about it."""

    def __init__(self, loop: SimulatedLoop, journal: list[AnyEvent]) -> None:
        self._loop = loop
        self._journal = journal
        self._works: dict[str, dict[str, tuple[Inhabitant, str]]] = {}
        """For each key and token, who is at work, and the stage of it."""

    def tell(self, stage: Any, key: str, token: str, program: Inhabitant) -> None:
        self._works.setdefault(key, {})[token] = (program, stage)
        mark = f"done by {token}" if stage == "done" else ""
        self._journal.append(
            Effect(at=self._loop.now_us, key=key, token=token, client=program.name, mark=mark, stage=stage)
        )

    def find(self, key: str) -> Resolved[str] | NotDone | None:
        """What a program finds out. Only what is over is certain; work of the dead is over."""
        works = self._works.get(key, {})
        done = [token for token, (_, stage) in works.items() if stage == "done"]
        if done:
            return Resolved(f"done by {done[-1]}")
        if any(stage == "began" and program.is_alive for program, stage in works.values()):
            return None
        for token, (program, stage) in works.items():
            if stage != "failed":
                self.tell("failed", key, token, program)
        return NotDone()


class Belief:
    """That a lock is held."""

    def __init__(self, program: Inhabitant, lock: str, held: Held, *, since: int) -> None:
        self.program = program
        self.lock = lock
        self.held = held
        self.since = since
        self.until = since
        """Up to when it was seen."""

    def look(self, now: int) -> None:
        """Whoever believes in it now has believed in it up to now."""
        believed_until = round(self.held._believed_until * 1_000_000)
        self.until = max(self.until, min(now, believed_until))


class Program(Inhabitant):
    """A program of a user, with the library in it."""

    def __init__(
        self,
        index: int,
        name: str,
        *,
        loop: SimulatedLoop,
        world: World,
        draws: Draws,
        skew_ms: int,
        database: Database,
        users: KeyUsers,
        ended: Callable[[Inhabitant, BaseException | None], None],
    ) -> None:
        super().__init__(index, name)
        self._loop = loop
        self._users = users
        self._world = world
        self._ended = ended
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._dice = Dice(draws, name)
        self._store = SimulatedStore(database, self)
        self._clock = SimulatedClock(loop, skew_ms=skew_ms)
        self._is_aligned = False
        self._locks: dict[str, Lock] = {}
        clock = SimulatedClock(loop, skew_ms=skew_ms)
        self._clocks += (self._clock, clock)
        claims = RecordsStore(self._store, clock=clock).waiting()
        claims.looks_first = world.sqlite  # as with SQLite, where a look is cheap
        model = LoopModel(monotonic=self._clock.monotonic, entropy=self._dice.randbytes)
        self.processor: Processor[dict[str, str], str] = Processor(
            claims,
            model,
            self._work,
            scope=SCOPE,
            exclude_fields=(),
            ttl_seconds=world.ttl_seconds,
            lease_seconds=world.lease_seconds,
            wait_seconds=world.wait_seconds,
            keep=None,
            resolve=self._resolve if world.resolves else None,
            safe_to_repeat=False,
            result_type=str,
        )

    def start(self) -> None:
        """It waits for its callers."""

    def stop(self) -> None:
        """As `asyncio.run` ends: everything that runs is cancelled and waited for."""
        self._loop.call_soon(self._begin_to_stop, context=self.context)

    def _begin_to_stop(self) -> None:
        self._stopping = self._stopping or self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        while tasks := [task for task in self._tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self._ended(self, None)

    def begin(self, act: Callable[[], Coroutine[Any, Any, None]], *, cancelled_after: float | None = None) -> None:
        self._loop.call_soon(self._begin, act, cancelled_after, context=self.context)

    def _begin(self, act: Callable[[], Coroutine[Any, Any, None]], cancelled_after: float | None) -> None:
        task = self._loop.create_task(act())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        if cancelled_after is not None:
            self._loop.call_later(cancelled_after, task.cancel)

    # --- work -----------------------------------------------------------------------------------------------

    async def do(self, name: str, operation: Operation, payload: str) -> str:
        _OPERATION.set((name, operation))
        identity = self.processor.identities.of({"mark": payload}, operation.ids[0])
        record = self.processor.known(identity) or await self.processor.process({"mark": payload}, identity)
        return record.result

    async def _work(self, _: dict[str, str]) -> str:
        token, operation = _OPERATION.get()
        key, ledger = operation.ids[0], self._users.ledger
        ledger.tell("began", key, token, self)
        try:
            await asyncio.sleep(operation.hold / 1000)
        except asyncio.CancelledError:
            ledger.tell("cancelled", key, token, self)
            raise
        if operation.verb == "failing":
            ledger.tell("failed", key, token, self)
            raise Failed(token)
        ledger.tell("done", key, token, self)
        self._users.worked(key)
        return f"done by {token}"

    async def _resolve(self, _: dict[str, str], unresolved: Unresolved) -> Resolved[str] | NotDone | None:
        await asyncio.sleep(0.01)
        found = self._users.ledger.find(unresolved.key)
        if found is not None:
            self._users.sometimes("unknown is resolved")
        return found

    # --- locks ----------------------------------------------------------------------------------------------

    async def lock(self, name: str) -> Lock:
        if not self._is_aligned:
            await follow(self._clock, self._store.time, is_aligned=False)
            self._is_aligned = True
        if name not in self._locks:
            self._locks[name] = Lock(
                self._store,
                self._clock,
                name,
                ttl_seconds=self._world.lease_seconds,
                owner=self.name,
                randomness=self._dice,
            )
        return self._locks[name]

    async def write(self, held: Held) -> tuple[int, int] | None:
        """As the holder of a lock; the token that was there before, and its own."""
        record = await held.records.get_record(LEDGER, held.name)
        before = 0 if record is None else int(record.value)
        expect = 0 if record is None else record.version
        value, first = b"%d" % held.token, first_version(self._dice)
        written = await held.records.put_record(LEDGER, held.name, value, expect=expect, first=first)
        return None if written is None else (before, held.token)


class KeyUsers:
    """The callers of a run."""

    def __init__(
        self,
        loop: SimulatedLoop,
        *,
        journal: list[AnyEvent],
        program: Callable[[int], Inhabitant],
        worked: Callable[[str], None],
        sometimes: Callable[[str], None],
        surprised: Callable[[str, Exception], None],
    ) -> None:
        """`worked` is told when work is done, `surprised` when something is raised that nobody should ever see."""
        self._loop = loop
        self._journal = journal
        self._program = program
        self.worked = worked
        self.sometimes = sometimes
        self._surprised = surprised
        self.ledger = Ledger(loop, journal)
        self._under_way: dict[str, Program] = {}
        self._beliefs: dict[Belief, None] = {}

    @property
    def done(self) -> bool:
        return not any(program.is_alive for program in self._under_way.values())

    def ask(self, name: str, operation: Operation) -> None:
        """Have an operation carried out by its program, if it is alive."""
        program = self._program(operation.node)
        if isinstance(program, Program) and program.is_alive:
            self._under_way[name] = program
            cancelled_after = operation.timeout / 1000 if operation.verb == "cancelled" else None
            program.begin(partial(self._carry_out, name, operation, program), cancelled_after=cancelled_after)

    async def _carry_out(self, name: str, operation: Operation, program: Program) -> None:
        try:
            if operation.verb == "hold":
                await self._hold(name, operation, program)
            elif operation.verb == "forget":
                self._invoke(name, operation, program, service="idempotency", verb="forget")
                await self._told(name, self._forget(operation, program))
            else:
                payload = "another" if operation.verb == "other" else "usual"
                self._invoke(name, operation, program, service="idempotency", verb="call", mark=payload)
                await self._told(name, self._call(name, operation, program, payload))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for the run to judge
            self._surprised(name, error)
        finally:
            if program.is_alive:
                self._under_way.pop(name, None)

    # --- keys -----------------------------------------------------------------------------------------------

    def _invoke(
        self, name: str, operation: Operation, program: Program, *, service: Any, verb: str, mark: str | None = None
    ) -> None:
        self._journal.append(
            Invoke(
                at=self._loop.now_us,
                op=name,
                client=f"c{operation.client}",
                service=service,
                verb=verb,
                items=(Asked(id=operation.ids[0], mark=mark),),
                node=program.name,
            )
        )

    async def _told(self, name: str, asked: Awaitable[View]) -> None:
        """Write down what a caller is told."""
        try:
            view = await asked
        except asyncio.CancelledError:
            self._journal.append(Info(at=self._loop.now_us, op=name, reason="cancelled"))
            raise
        except Failed:
            self._journal.append(Fail(at=self._loop.now_us, op=name, code="failed"))
        except REFUSED as error:
            self._journal.append(Fail(at=self._loop.now_us, op=name, code=error.code))
        except MainspringError as error:
            self._journal.append(Info(at=self._loop.now_us, op=name, reason=error.code))
        else:
            self._journal.append(Ok(at=self._loop.now_us, op=name, views=(view,)))

    async def _call(self, name: str, operation: Operation, program: Program, payload: str) -> View:
        result = await program.do(name, operation, payload)
        return View(id=operation.ids[0], state="completed", mark=result)

    async def _forget(self, operation: Operation, program: Program) -> View:
        was_there = await program.processor.forget(operation.ids[0])
        return View(id=operation.ids[0], state="forgotten" if was_there else "")

    # --- locks ----------------------------------------------------------------------------------------------

    async def _hold(self, name: str, operation: Operation, program: Program) -> None:
        self._invoke(name, operation, program, service="locks", verb="acquire")
        belief: Belief | None = None
        try:
            lock = await program.lock(operation.ids[0])
            async with lock.hold(wait_seconds=operation.timeout / 1000) as held:
                belief = self._believe(name, program, held)
                try:
                    await self._use(operation, program, held)
                finally:
                    self._stop_believing(belief)
        except asyncio.CancelledError:
            if belief is None:
                self._journal.append(Info(at=self._loop.now_us, op=name, reason="cancelled"))
            raise
        except LockLost:
            self.sometimes("holder outlives lease")
        except MainspringError as error:
            if belief is None:
                is_certain = not isinstance(error, StoreUnavailable)
                said = Fail(at=self._loop.now_us, op=name, code=error.code) if is_certain else None
                self._journal.append(said or Info(at=self._loop.now_us, op=name, reason=error.code))

    def _believe(self, name: str, program: Program, held: Held) -> Belief:
        now = self._loop.now_us
        for other in self._beliefs:
            if other.lock == held.name and other.program.is_alive:
                other.look(now + 1)
        belief = Belief(program, held.name, held, since=now)
        self._beliefs[belief] = None
        self._journal.append(Ok(at=now, op=name, views=(View(id=held.name, state="held"),)))
        return belief

    async def _use(self, operation: Operation, program: Program, held: Held) -> None:
        left = operation.hold / 1000
        while left > 0:
            step = min(left, held.ttl_seconds / 4)
            await asyncio.sleep(step)
            left -= step
            asked_at = self._loop.now_us
            try:
                written = await program.write(held)
            except StoreUnavailable:
                continue
            if written is not None:
                self._journal.append(
                    Effect(
                        at=asked_at,  # by then it had not been written; the answer may come long after
                        service="locks",
                        key=held.name,
                        token=str(written[1]),
                        mark=str(written[0]),
                        client=program.name,
                    )
                )

    def _stop_believing(self, belief: Belief) -> None:
        belief.look(self._loop.now_us)
        del self._beliefs[belief]
        self._tell(belief)

    def _tell(self, belief: Belief) -> None:
        self._journal.append(
            told.Held(
                at=belief.since,
                lock=belief.lock,
                client=belief.program.name,
                fence=belief.held.token,
                until=belief.until,
            )
        )

    def end(self) -> None:
        """Record those that nobody has given up: their programs are dead, or stand still."""
        for belief in self._beliefs:
            self._tell(belief)
        self._beliefs.clear()
