"""Runs a plan: the world is set up, users act, blows fall, everything is healed, and the oracle judges the journal.

After healing, the run ends when no timer is owed any more, when nothing has moved for so long that nothing will, or
after ten simulated minutes. Processes that died are unwound only after the verdict.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from types import CoroutineType
from typing import Final

import msgspec
from msgspec import Struct

from mainspring import crashpoint
from mainspring.kernel.ownership import Lease
from mainspring.model import State, Timer
from mainspring.store import START, Put, TimerFilter
from mainspring.stores.plan import Write
from mainspring.testing.oracle import world as oracle
from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import AnyEvent, Bound, Commit, Entry, Fault, Left, Owner, Reached, Row
from mainspring.testing.oracle.judge import judge
from mainspring.testing.simulation.clock import SimulatedClock
from mainspring.testing.simulation.commits import mark_of, service_of
from mainspring.testing.simulation.draws import Dice, Draws
from mainspring.testing.simulation.loop import CURRENT, Process, SimulatedLoop, Spinning, context_of
from mainspring.testing.simulation.node import Died, Node
from mainspring.testing.simulation.plan import Blow, Operation, Plan, Regime, World
from mainspring.testing.simulation.receivers import Receivers, host_of
from mainspring.testing.simulation.sqlite import SQLiteTables
from mainspring.testing.simulation.store import FOREIGN, Caller, Database, SimulatedStore
from mainspring.testing.simulation.tables import Tables
from mainspring.testing.simulation.users.timers import TimerUsers
from mainspring.testing.simulation.wire import Peer, Wire
from mainspring.timers import changes
from mainspring.timers.messages import CreateNamespace, CreateTimer, TimerView, view_of
from mainspring.timers.namespaces import NamespaceService

LONGEST_US: Final = 600_000_000
LOOK_US: Final = 250_000
UNWINDINGS: Final = 200
"""How often a coroutine may wait once more while it is closed."""
AIR_US: Final = 2_500_000
HORIZON_MS: Final = 60_000
"""Timers due later than this after healing are not waited for."""
MANY: Final = 100
"""Destinations whose circuits are not all looked at."""
EXIT: Final = "Exit"
"""The rule that no instance ends by itself."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    plan: Plan
    violations: list[Violation]
    digest: str
    """Of the whole journal."""
    reached: list[str]
    labels: list[str]
    """That were drawn."""
    seconds: float
    """Simulated."""
    journal: list[AnyEvent]
    calls: int = 0


def simulate(plan: Plan) -> Outcome:
    draws = Draws(plan.seed, muted=plan.muted)
    loop = SimulatedLoop(draws.order)
    with _quiet():
        run = _Run(plan, loop, draws)
        try:
            violations = run.verdict()
        finally:
            _unwind(loop, run)
    digest = blake2b(digest_size=16)
    encoder = msgspec.json.Encoder()
    for event in run.journal:
        digest.update(encoder.encode(event))
    return Outcome(
        plan=plan,
        violations=violations,
        digest=digest.hexdigest(),
        reached=list(run.reached),
        labels=draws.labels,
        seconds=loop.time(),
        journal=run.journal,
    )


def oracle_world(world: World) -> oracle.World:
    return oracle.World(
        commits=True,
        lease_seconds=world.lease_seconds,
        look_seconds=world.look_seconds,
        wire_ms=2 * world.wire,
        latency_ms=world.latency,
        call_timeout_ms=5000,
        window_limit=world.window_limit,
        in_flight_limit=world.in_flight_limit,
        host_limit=world.host_limit,
        page_size=world.page_size,
        circuit_seconds=world.circuit_seconds,
        hosts={
            host_of(number): oracle.Host(kind=known.kind, seconds=known.seconds, healed=known.healed)
            for number, known in enumerate(world.destinations)
            if known.kind != "fast"
        },
    )


class _Foreign:
    """Who writes without being an instance."""

    name = FOREIGN
    index = -1


class _Run:
    def __init__(self, plan: Plan, loop: SimulatedLoop, draws: Draws) -> None:
        self._plan = plan
        self._world = world = plan.world
        self._loop = loop
        self._draws = draws
        self.journal: list[AnyEvent] = []
        self.reached: dict[str, None] = {}
        self.exits: list[Violation] = []
        self._context = context_of(Process("fate"))
        self._clock = SimulatedClock(loop)
        self._tables: Tables = SQLiteTables() if world.sqlite else Tables()
        self.database = Database(
            loop,
            self._tables,
            world,
            draws,
            journal=self.journal,
            reached=self._reach,
            sometimes=self.sometimes,
            committed=self._observe,
        )
        hosts = {host_of(number): known for number, known in enumerate(world.destinations)}
        self._receivers = Receivers(hosts, draws, self.journal.append)
        self._wire = Wire(
            loop,
            world,
            draws,
            self._receivers,
            journal=self.journal,
            wall_ms=self.database.now_ms,
            peer=self._peer,
            sent=self._measure,
        )
        self._users = TimerUsers(
            loop,
            world,
            self._wire,
            journal=self.journal,
            address=self._address,
            foreign=self._transact,
            wall_ms=self.database.now_ms,
        )
        self.nodes: dict[str, Node] = {}
        self._current: dict[int, Node] = {}
        self._lives: dict[int, int] = {}
        self._traps: dict[int, list[Blow]] = {}
        self._bounds: dict[tuple[str, str], int] = {}
        self._open_circuits: dict[str, int] = {}
        self._dice = Dice(draws, FOREIGN)
        self.healed_at = 0
        self._is_over = False

    def sometimes(self, what: str) -> None:
        if what not in self.reached:
            self.reached[what] = None
            self.journal.append(Reached(at=self._loop.now_us, what=what))

    def verdict(self) -> list[Violation]:
        try:
            with crashpoint.listening(self.reach_current):
                self._loop.run_until_complete(self.to_the_end())
        except Spinning as spinning:
            detail = f"it works without end from {self._loop.time():.3f} s on, and time does not go on"
            return [*self.exits, Violation("Live", spinning.process, detail, len(self.journal))]
        return [*self.exits, *judge(self.journal, oracle_world(self._world))]

    # --- from the beginning to the end ------------------------------------------------------------------------

    async def to_the_end(self) -> None:
        await self._prepare()
        self.database.calm = False
        for index in range(self._world.instances):
            self._start(index)
        for regime in self._plan.regimes:
            self._at(regime.at, self._begin_regime, regime)
            self._at(regime.at + regime.length, self._end_regime, regime)
        for blow in self._plan.blows:
            self._at(blow.at, self._strike, blow)
        self._users.start(self._plan.operations)
        await asyncio.sleep(self._plan.heals_at / 1000)
        await self._users.done()
        self._heal()
        await self._rest()
        self.journal.append(self._left())
        self._is_over = True

    async def _prepare(self) -> None:
        """The namespace of all timers, made before anybody starts."""
        bare = SimulatedStore(self.database, _Foreign())
        namespaces = NamespaceService(records=bare, clock=self._clock, randomness=self._dice, created=lambda: None)
        await namespaces.create(CreateNamespace(name="default", shard_count=self._world.shards))
        self._namespace = await namespaces.find("default")

    def _at(self, ms: int, act: object, *args: object) -> None:
        assert callable(act)
        self._loop.call_at_us(ms * 1000, act, *args, context=self._context)

    async def _rest(self) -> None:
        """Until nothing is owed any more."""
        world = self._world
        earliest = self.healed_at + round((world.lease_seconds + world.look_seconds) * 1_000_000) + AIR_US
        patience = round(3 * max(world.lease_seconds, world.look_seconds, world.circuit_seconds) * 1e6) + 15_000_000
        while self._loop.now_us < self.healed_at + LONGEST_US:
            await asyncio.sleep(LOOK_US / 1_000_000)
            if self._loop.now_us < earliest:
                continue
            waiting = [row for row in self._rows() if self._is_owed(row)]
            if not waiting and not any(self._wire.to_hosts.values()):
                return
            last = max(self.database.written_at, self.healed_at)
            now_ms = self.database.now_ms()
            is_due = any(row.due_at <= now_ms for row in waiting)
            if is_due and self._loop.now_us - last > patience:
                return

    def _rows(self) -> list[Timer]:
        return self._tables.list_timers(self._namespace.shards, TimerFilter(), after=START, limit=1_000_000)

    def _is_owed(self, row: Timer) -> bool:
        return row.state is not State.PARKED and row.due_at <= self.database.now_ms() + HORIZON_MS

    # --- processes --------------------------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        life = self._lives.get(index, 0) + 1
        self._lives[index] = life
        name = f"i{index}" if life == 1 else f"i{index}-{life}"
        node = self.nodes[name] = self._current[index] = Node(
            index,
            name,
            loop=self._loop,
            world=self._world,
            draws=self._draws,
            database=self.database,
            wire=self._wire,
            is_dead=self._is_dead,
            ended=self._ended,
        )
        for regime in self.database.regimes:
            if regime.node == index:
                self._tell_regime(regime)
        node.start()

    def _is_dead(self, lease: Lease) -> bool:
        if not self._world.one_machine:
            return False
        node = self.nodes.get(lease.instance)
        return node is None or not node.is_alive

    def _peer(self, name: str) -> Peer | None:
        node = self.nodes.get(name)
        return node if node is not None and node.listens else None

    def _address(self, index: int) -> str:
        return self._current[index].name

    def _ended(self, node: Node, error: BaseException | None) -> None:
        """A process has ended by itself; that is a defect unless it was asked to."""
        if not node.is_alive or self._is_over:
            return
        if error is not None:
            detail = f"{node.name} ended by itself: {_words(error)}"
            self.exits.append(Violation(EXIT, node.name, detail, len(self.journal)))
            self.journal.append(Fault(at=self._loop.now_us, kind="kill", node=node.name, mode="exit"))
            self._loop.call_at_us(self._loop.now_us + 1_000_000, self._restart, node.index, context=self._context)
        self._loop.kill(node.process)
        self._wire.reset(node.name)

    def _kill(self, node: Node, point: str = "") -> None:
        if not node.is_alive:
            return
        self.journal.append(Fault(at=self._loop.now_us, kind="kill", node=node.name, mode=point))
        self._loop.kill(node.process)
        self._wire.reset(node.name)
        if not any(other.is_alive for other in self._current.values()):
            self.sometimes("all dead")

    def _pause(self, node: Node, length_ms: int, point: str = "") -> None:
        if not node.is_alive or node.process.held:
            return
        until = self._loop.now_us + length_ms * 1000
        self.journal.append(Fault(at=self._loop.now_us, until=until, kind="pause", node=node.name, mode=point))
        self._loop.hold(node.process)
        self._loop.call_at_us(until, self._go_on, node, context=self._context)

    def _go_on(self, node: Node) -> None:
        if node.is_alive:
            self._loop.go_on(node.process)

    def _restart(self, index: int) -> None:
        node = self._current.get(index)
        if node is None or not node.is_alive:
            self._start(index)
            self.journal.append(
                Fault(at=self._loop.now_us, kind="restart" if node else "join", node=self._current[index].name)
            )

    # --- blows ------------------------------------------------------------------------------------------------

    def _strike(self, blow: Blow) -> None:
        now = self._loop.now_us
        if blow.kind == "store-clock":
            self.journal.append(Fault(at=now, kind="store-clock"))
            self.database.step_ms += blow.length
            return
        if blow.kind == "join":
            if len(self._current) < 8:
                self._restart(len(self._current))
            return
        indexes = list(self._current) if blow.node < 0 else [blow.node]
        for index in indexes:
            node = self._current[index]
            if blow.kind == "restart":
                self._restart(index)
            elif blow.point:
                self._traps.setdefault(index, []).append(blow)
            elif blow.kind == "kill":
                self._kill(node)
            elif blow.kind == "pause":
                self._pause(node, blow.length)
            elif node.is_alive and blow.kind == "stop":
                self.journal.append(Fault(at=now, kind="stop", node=node.name))
                node.stop()
            elif node.is_alive and blow.kind == "cut-peers":
                until = now + blow.length * 1000
                self.journal.append(Fault(at=now, until=until, kind="peers", node=node.name))
                self._wire.cut_off.add(node.name)
                self._loop.call_at_us(until, self._wire.cut_off.discard, node.name, context=self._context)

    def reach_current(self, name: str) -> None:
        """The running process has come to a crash point."""
        process = CURRENT.get(None)
        node = self.nodes.get(process.name) if process is not None else None
        if node is not None and node.is_alive:
            self._reach(node, name)
            if not node.is_alive:
                raise Died(name)

    def _reach(self, caller: Caller, name: str) -> None:
        traps = self._traps.get(caller.index)
        node = self.nodes.get(caller.name)
        if not traps or node is None or not node.is_alive:
            return
        for blow in [trap for trap in traps if trap.point == name]:
            traps.remove(blow)
            self.sometimes(f"crash point {name}")
            if blow.kind == "kill":
                self._kill(node, name)
            else:
                self._pause(node, blow.length, name)

    def _begin_regime(self, regime: Regime) -> None:
        self.database.regimes.append(regime)
        self._tell_regime(regime)

    def _tell_regime(self, regime: Regime) -> None:
        until = (regime.at + regime.length) * 1000
        node = None if regime.node is None else self._current[regime.node].name
        self.journal.append(
            Fault(
                at=self._loop.now_us,
                until=until,
                kind="store",
                node=node,
                shard=regime.shard,
                verb=regime.verb,
                mode=regime.kind,
            )
        )

    def _end_regime(self, regime: Regime) -> None:
        self.database.regimes.remove(regime)

    def _heal(self) -> None:
        """Everything is well from now on, but for what the plan leaves bad."""
        self.healed_at = self._loop.now_us
        self._traps.clear()
        self._receivers.healed = self.database.calm = True
        cut = self._world.left_cut
        if cut is not None and len(self._current) > 1:
            regime = Regime(at=self._plan.heals_at, length=LONGEST_US, kind="hang", node=cut)
            self._begin_regime(regime)
        for index in list(self._current):
            if index not in self._world.left_dead or not self._others_live(index):
                self._restart(index)

    def _others_live(self, index: int) -> bool:
        cut = self._world.left_cut
        return any(node.is_alive for other, node in self._current.items() if other not in (index, cut))

    # --- a foreign transaction ----------------------------------------------------------------------------------

    async def _transact(self, name: str, operation: Operation, request: CreateTimer) -> TimerView:
        """Create a timer as a program does in its own transaction, which stays open for a while."""
        key = self._namespace.key_of(request.timer_id)
        row = (key.shard_id, key.uuid)
        now = self._loop.now_us
        if operation.hold:
            until = now + operation.hold * 1000
            self.journal.append(
                Fault(at=now, until=until, kind="foreign-lock", id=request.timer_id, shard=key.shard_id)
            )
            self.database.locked[row] = self.database.locked.get(row, 0) + 1
            await asyncio.sleep(operation.hold / 1000)
            self.database.locked[row] -= 1
            if not self.database.locked[row]:
                del self.database.locked[row]
        fresh = changes.created(
            request,
            self._namespace,
            now=self.database.now_ms(),
            version=self._dice.getrandbits(62) + 1,
            delivery_id=f"msg_{self._dice.getrandbits(128):032x}",
            max_payload=100_000,
        )
        [present] = self._tables.get([key])
        timer = fresh if present is None else changes.recreated(fresh, present)
        self.database.commit_now(_Foreign(), Write([Put(timer, present.version if present else 0)]), name)
        return view_of(timer)

    # --- what happens sometimes ---------------------------------------------------------------------------------

    def _observe(self, commit: Commit) -> None:
        """Look into the instances when something was written that is rare in company."""
        if commit.verb == "renew":
            node = self.nodes.get(commit.node)
            ownership = node.instance.ownership if node is not None and node.instance is not None else None
            if ownership is not None and ownership.fences and not ownership.valid():
                self.sometimes("lease lapsed here, yet kept")
        elif commit.verb == "write" and commit.service == "timers" and commit.after:
            uuid = self._namespace.key_of(commit.id).uuid
            for node in self._current.values():
                self._observe_row(node, uuid, commit.delivery_id)

    def _observe_row(self, node: Node, uuid: str, delivery_id: str) -> None:
        """A row was written: does this instance still have another delivery of its id in hand?"""
        engine = node.instance.engine if node.is_alive and node.instance is not None else None
        row = engine.dispatcher.window.rows.get(uuid) if engine is not None else None
        if engine is None or row is None or row.detail.delivery_id == delivery_id:
            return
        _, call = engine.dispatcher._calls.get(uuid, (None, None))
        in_hand = uuid in engine.dispatcher._calls
        self.sometimes(f"re-created while {'in flight' if call else 'starting' if in_hand else 'queued'}")

    # --- what is there ------------------------------------------------------------------------------------------

    def _measure(self, name: str) -> None:
        """Note the most that was seen of what is bounded."""
        node = self.nodes[name]
        engine = node.instance.engine if node.instance is not None else None
        if engine is None:
            return
        in_flight = engine.dispatcher.in_flight
        self._note(name, "in-flight", in_flight)
        self._note(name, "window", in_flight + engine.dispatcher.queued)
        self._note(name, "host", max(self._wire.to_hosts.values(), default=0))
        if engine.dispatcher.window.left_any and engine.dispatcher.window.room == 0:
            self.sometimes("rows left in the store")
        if len(self._world.destinations) < MANY:
            open_circuits = engine.dispatcher.open_circuits
            if open_circuits < self._open_circuits.get(name, 0):
                self.sometimes("circuit closed")
            self._open_circuits[name] = open_circuits

    def _note(self, name: str, what: str, value: int) -> None:
        if value > self._bounds.get((name, what), 0):
            self._bounds[name, what] = value

    def _left(self) -> Left:
        world = self._world
        limits = {"in-flight": world.in_flight_limit, "window": world.window_limit, "host": world.host_limit}
        alive = tuple(node.name for index, node in self._current.items() if node.is_alive and index != world.left_cut)
        rows, entries = self._rows(), tuple(self._entries())
        if any(entry.detail.startswith("This instance stopped") for entry in entries):
            self.sometimes("drain given up")
        return Left(
            at=self._loop.now_us,
            wall_ms=self.database.now_ms(),
            healed_at=self.healed_at,
            alive=alive,
            rows=tuple(map(_row, rows)),
            history=entries,
            owners=tuple(self._owners(alive)),
            bounds=tuple(
                Bound(node=node, what=what, value=value, limit=limits[what])
                for (node, what), value in self._bounds.items()
            ),
        )

    def _entries(self) -> Iterator[Entry]:
        ids = {id: None for operation in self._plan.operations for id in operation.ids}
        for id in ids:
            for attempt in reversed(self._tables.history(self._namespace.key_of(id), limit=1_000_000)):
                yield Entry(
                    id=id,
                    delivery_id=attempt.delivery_id,
                    attempt=attempt.attempt,
                    generation=attempt.generation,
                    outcome=attempt.outcome.value,
                    next=attempt.next,
                    started_ms=attempt.started_at,
                    duration_ms=attempt.duration_ms,
                    next_ms=attempt.next_at,
                    status=attempt.status,
                    detail=attempt.detail,
                )

    def _owners(self, alive: tuple[str, ...]) -> Iterator[Owner]:
        for shard in self._tables.shards(self._namespace.shards):
            node = self.nodes.get(shard.owner)
            engine = node.instance.engine if node is not None and node.instance is not None else None
            knows = shard.owner in alive and engine is not None and engine.owns(shard.shard_id)
            yield Owner(shard=shard.shard_id, version=shard.version, owner=shard.owner, alive=knows)


def _row(timer: Timer) -> Row:
    last = timer.detail.last_outcome
    return Row(
        id=timer.timer_id,
        delivery_id=timer.detail.delivery_id,
        generation=timer.generation,
        state=timer.state.value,
        attempts=timer.attempts,
        due_ms=timer.detail.execute_at,
        version=timer.version,
        delivery=timer.detail.delivery.value,
        mark=mark_of(timer.payload) if service_of(timer) == "timers" else "",
        host=timer.detail.callback_url.removeprefix("http://").removesuffix("/hook"),
        reason=last.detail if last is not None else "",
        shard=timer.shard_id,
    )


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


@contextmanager
def _quiet() -> Iterator[None]:
    """No logs, and no collector: both only cost time."""
    before, was_on = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        logging.disable(before)
        if was_on:
            gc.enable()


def _unwind(loop: SimulatedLoop, run: _Run) -> None:
    """Close every coroutine that still waits, the dead ones' included: nothing that happens now counts."""
    run.database.closed = True
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio._set_running_loop(loop)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # of those that want to wait while they are closed
    try:
        while tasks := [task for task in asyncio.all_tasks(loop) if _is_open(task)]:
            for task in sorted(tasks, key=hash):
                _close(task)
    finally:
        sys.unraisablehook = hook
        asyncio._set_running_loop(None)
        loop.close()


def _is_open(task: asyncio.Task[object]) -> bool:
    coroutine = task.get_coro()
    return isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None


def _close(task: asyncio.Task[object]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert isinstance(coroutine, CoroutineType)
    for _ in range(UNWINDINGS):
        if coroutine.cr_frame is None:
            return
        with suppress(Exception, Died):
            coroutine.close()
    raise RuntimeError(f"Expected a coroutine that ends, got {coroutine}")
