"""Runs a plan: the world is set up, users act, blows fall, everything is healed, and the oracle judges the journal.

After healing, the run ends when no timer is owed, when nothing has moved for so long that nothing will, or
after ten simulated minutes. Processes that died are unwound only after the verdict.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mainspring import crashpoint
from mainspring.kernel.ownership import Lease
from mainspring.model import Namespace, State, Timer
from mainspring.namespaces.service import DEFAULT, NAMESPACES
from mainspring.store import START, TimerFilter
from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import AnyEvent, Fault, Left, Owner, Reached
from mainspring.testing.oracle.judge import judge
from mainspring.testing.simulation.database import FOREIGN, Caller, Database
from mainspring.testing.simulation.draws import Dice, Draws
from mainspring.testing.simulation.foreign import ForeignPrograms
from mainspring.testing.simulation.left import entries_of, oracle_world, row_of
from mainspring.testing.simulation.loop import CURRENT, Process, SimulatedLoop, Spinning, context_of
from mainspring.testing.simulation.node import Died, Inhabitant, Node
from mainspring.testing.simulation.observer import Observer
from mainspring.testing.simulation.plan import EXECUTORS, Blow, Plan, Regime
from mainspring.testing.simulation.receivers import Receivers, host_of
from mainspring.testing.simulation.sqlite import SQLiteTables
from mainspring.testing.simulation.tables import Tables, first_namespace
from mainspring.testing.simulation.users.timers import TimerUsers
from mainspring.testing.simulation.wire import Peer, Wire

LONGEST_US: Final = 600_000_000
LOOK_US: Final = 250_000
AIR_US: Final = 2_500_000
HORIZON_MS: Final = 60_000
"""Timers due later than this after healing are not waited for."""
EXIT: Final = "Exit"
"""The rule that no instance ends by itself."""


class Run:
    """A run of timers. Those of other services begin with this one: see `services`."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, draws: Draws) -> None:
        self._plan = plan
        self._world = world = plan.world
        self._loop = loop
        self._draws = draws
        self.journal: list[AnyEvent] = []
        self.reached: dict[str, None] = {}
        self.exits: list[Violation] = []
        self._context = context_of(Process("fate"))
        self._tables: Tables = SQLiteTables() if world.sqlite else Tables()
        dice = Dice(draws, FOREIGN)
        self._first_namespace = first_namespace(self._tables, world, dice)
        self.nodes: dict[str, Inhabitant] = {}
        self._observer = Observer(world, self.nodes, self._namespace, sometimes=self.sometimes)
        self.database = Database(
            loop,
            self._tables,
            world,
            draws,
            journal=self.journal,
            reached=self._reach,
            sometimes=self.sometimes,
            committed=self._observer.committed,
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
            sent=self._observer.sent,
        )
        foreign = ForeignPrograms(loop, self.database, self._namespace, randomness=dice, journal=self.journal)
        self._users = TimerUsers(
            loop,
            world,
            self._wire,
            journal=self.journal,
            address=self._address,
            foreign=foreign.create,
            wall_ms=self.database.now_ms,
        )
        self._current: dict[int, Inhabitant] = {}
        self._lives: dict[int, int] = {}
        self._traps: dict[int, list[Blow]] = {}
        self._steps: Counter[int] = Counter()  # by how much the wall clock of each was moved
        self.healed_at = 0
        self._is_over = False

    def _namespace(self) -> Namespace:
        """As the database has it."""
        if not self._world.more_shards:
            return self._first_namespace
        record = self._tables.get_record(NAMESPACES, DEFAULT, now=0)
        assert record is not None
        return msgspec.json.decode(record.value, type=Namespace)

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
        self.database.calm = False
        for index in self._world.nodes:
            self._start(index)
        for regime in self._plan.regimes:
            self._at(regime.at, self._begin_regime, regime)
            self._at(regime.at + regime.length, self._end_regime, regime)
        for blow in self._plan.blows:
            self._at(blow.at, self._strike, blow)
        self._begin()
        await asyncio.sleep(self._plan.heals_at / 1000)
        await self._done()
        self._heal()
        await self._rest()
        self.journal.append(self._left())
        self._is_over = True

    def _begin(self) -> None:
        """Let the users act."""
        self._users.start(self._plan.operations)
        if self._world.more_shards:
            shards = self._world.shards + self._world.more_shards
            self._context.run(self._loop.create_task, self._users.reshard(shards))

    async def _done(self) -> None:
        await self._users.done()

    def _at(self, ms: int, act: object, *args: object) -> None:
        assert callable(act)
        self._loop.call_at_us(ms * 1000, act, *args, context=self._context)

    async def _rest(self) -> None:
        """Until nothing is owed."""
        world = self._world
        earliest = self.healed_at + round((world.lease_seconds + world.look_seconds) * 1_000_000) + AIR_US
        patience = round(3 * max(world.lease_seconds, world.look_seconds, world.circuit_seconds) * 1e6) + 15_000_000
        while self._loop.now_us < self.healed_at + LONGEST_US:
            await asyncio.sleep(LOOK_US / 1_000_000)
            if self._loop.now_us < earliest:
                continue
            waiting = [row for row in self._rows() if self._is_owed(row)]
            if not waiting and not self._is_more_owed() and not any(self._wire.to_hosts.values()):
                return
            last = max(self.database.written_at, self.healed_at)
            now_ms = self.database.now_ms()
            is_due = any(row.due_at <= now_ms for row in waiting)
            if is_due and self._loop.now_us - last > patience:
                return

    def _rows(self) -> list[Timer]:
        return self._tables.list_timers(self._namespace().shards, TimerFilter(), after=START, limit=1_000_000).timers

    def _is_owed(self, row: Timer) -> bool:
        return row.state is not State.PARKED and row.due_at <= self.database.now_ms() + HORIZON_MS

    def _is_more_owed(self) -> bool:
        """Whether anything but timers still has to happen."""
        return False

    # --- processes --------------------------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        life = self._lives.get(index, 0) + 1
        self._lives[index] = life
        name = f"i{index}" if index < EXECUTORS else f"x{index - EXECUTORS}"
        if life > 1:
            name += f"-{life}"
        node = self.nodes[name] = self._current[index] = self._make(index, name)
        for regime in self.database.regimes:
            if regime.node == index:
                self._tell_regime(regime)
        node.start()

    def _make(self, index: int, name: str) -> Inhabitant:
        return Node(
            index,
            name,
            loop=self._loop,
            world=self._world,
            draws=self._draws,
            skew_ms=self._skew_ms(index),
            database=self.database,
            wire=self._wire,
            is_dead=self._is_dead,
            ended=self._ended,
        )

    def _skew_ms(self, index: int) -> int:
        return self._world.skews[index % len(self._world.skews)] + self._steps[index]

    def _is_dead(self, lease: Lease) -> bool:
        if not self._world.one_machine:
            return False
        node = self.nodes.get(lease.instance.rpartition("/")[2])  # an executor's name begins with that of its pool
        return node is None or not node.is_alive

    def _peer(self, name: str) -> Peer | None:
        node = self.nodes.get(name)
        return node if isinstance(node, Node) and node.listens else None

    def _address(self, index: int) -> str:
        return self._current[index].name

    def _ended(self, node: Inhabitant, error: BaseException | None) -> None:
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

    def _kill(self, node: Inhabitant, point: str = "") -> None:
        if not node.is_alive:
            return
        self.journal.append(Fault(at=self._loop.now_us, kind="kill", node=node.name, mode=point))
        self._loop.kill(node.process)
        self._wire.reset(node.name)
        if not any(other.is_alive for other in self._current.values()):
            self.sometimes("all dead")

    def _pause(self, node: Inhabitant, length_ms: int, point: str = "") -> None:
        if not node.is_alive or node.process.held:
            return
        until = self._loop.now_us + length_ms * 1000
        self.journal.append(Fault(at=self._loop.now_us, until=until, kind="pause", node=node.name, mode=point))
        self._loop.hold(node.process)
        self._loop.call_at_us(until, self._go_on, node, context=self._context)

    def _go_on(self, node: Inhabitant) -> None:
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
            elif blow.kind == "wall-clock":
                self._step_wall(node, blow.length)
            elif node.is_alive and blow.kind == "stop":
                self.journal.append(Fault(at=now, kind="stop", node=node.name))
                node.stop()
            elif node.is_alive and blow.kind == "cut-peers":
                until = now + blow.length * 1000
                self.journal.append(Fault(at=now, until=until, kind="peers", node=node.name))
                self._wire.cut_off.add(node.name)
                self._loop.call_at_us(until, self._wire.cut_off.discard, node.name, context=self._context)

    def _step_wall(self, node: Inhabitant, by_ms: int) -> None:
        """The clock belongs to its machine: whatever is started there later finds it like that."""
        self.journal.append(Fault(at=self._loop.now_us, kind="clock", node=node.name))
        self._steps[node.index] += by_ms
        node.step_wall(by_ms)
        self.sometimes("wall clock stepped")

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
        """Everything is well from now on, except for what the plan leaves bad."""
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
        return any(
            node.is_alive for other, node in self._current.items() if other not in (index, cut) and other < EXECUTORS
        )

    # --- what is there ------------------------------------------------------------------------------------------

    def _left(self) -> Left:
        world = self._world
        alive = tuple(
            node.name
            for index, node in self._current.items()
            if node.is_alive and index != world.left_cut and index < EXECUTORS
        )
        ids = {id: None for operation in self._plan.operations for id in operation.ids}
        rows, entries = self._rows(), tuple(entries_of(self._tables, self._namespace(), ids))
        if any(entry.detail.startswith("This instance stopped") for entry in entries):
            self.sometimes("drain given up")
        return Left(
            at=self._loop.now_us,
            wall_ms=self.database.now_ms(),
            healed_at=self.healed_at,
            alive=alive,
            rows=tuple(map(row_of, rows)),
            history=entries,
            owners=tuple(self._owners(alive)),
            bounds=tuple(self._observer.bounds()),
        )

    def _shards(self) -> Sequence[int]:
        """The shards that must have owners at the end."""
        return self._namespace().shards

    def _owners(self, alive: tuple[str, ...]) -> Iterator[Owner]:
        for shard in self._tables.shards(self._shards()):
            node = self.nodes.get(shard.owner)
            engine = node.instance.engine if node is not None and node.instance is not None else None
            knows = shard.owner in alive and engine is not None and engine.owns(shard.shard_id)
            yield Owner(shard=shard.shard_id, version=shard.version, owner=shard.owner, alive=knows)


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
