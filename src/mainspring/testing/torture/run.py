"""One run: users at work, blows that fall, then healing, rest, what is left, and the verdict of the oracle."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mainspring.client import AsyncClient, State
from mainspring.clock import wall_ms
from mainspring.errors import MainspringError
from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import Fault, Invoke, JournalFile
from mainspring.testing.oracle.judge import judge
from mainspring.testing.oracle.world import World as OracleWorld
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import Operation, World
from mainspring.testing.simulation.swarm import TIMEOUTS, VERBS, draw_operation
from mainspring.testing.simulation.users.timers import TimerAsking
from mainspring.testing.torture.figures import Figures, figures_of
from mainspring.testing.torture.foreign import Foreigner, has_transactions
from mainspring.testing.torture.hosts import Hosts, destinations_at, now_us
from mainspring.testing.torture.left import read_left
from mainspring.testing.torture.members import Member
from mainspring.testing.torture.process import TOKEN
from mainspring.testing.torture.relay import Relay, relay_to
from mainspring.testing.torture.world import draw_world, oracle_world, settings_of
from mainspring.wire.instants import to_instant

REST_SECONDS: Final = 120.0
PENDING: Final = (State.SCHEDULED, State.RUNNING, State.RETRYING)
SOON_MS: Final = 600_000
"""What is due later than that is not waited for."""
UNAWAITED: Final = 20
"""How many answers a client leaves unread at most."""
PAUSES: Final = (0, 10, 50, 200)
BLOWS: Final = {"kill": 4, "pause": 2, "stop": 2, "cut": 3, "hold": 2, "database": 1}


@dataclass(frozen=True, slots=True)
class Torture:
    """What is to be done."""

    store_url: str
    seed: int
    seconds: float
    servers: int = 3
    clients: int = 18
    destinations: int = 200
    lease_seconds: float = 3.0
    server_urls: Sequence[str] = ()
    """The URL of the store for each server, if they should not all use the same."""
    restart_database: Callable[[], None] | None = None
    """Kills the database and starts it again. None: it is left in peace, and so are the lines to it."""
    blows: dict[str, int] = field(default_factory=lambda: BLOWS)
    """How often each kind of blow falls, relative to the others."""
    points: Sequence[str] = ()
    """Crash points that servers are to end at, each at least once; then, and if there are none, any of them."""
    is_armed: bool = True
    """Whether servers that come back may have a crash point armed."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the servers that override what the seed says."""
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """More environment variables for the servers."""

    @property
    def has_server(self) -> bool:
        return self.restart_database is not None


async def torture(
    directory: Path, wanted: Torture, progress: Callable[[float, int], None] = lambda _, __: None
) -> Figures:
    """Carry it out in an empty directory, and judge it. The journal is left there."""
    with JournalFile(directory / "journal.jsonl") as journal:
        async with AsyncExitStack() as stack:
            run = await _Run.set_up(stack, directory, wanted, journal)
            (directory / "world.json").write_bytes(msgspec.json.encode(run.oracle_world))
            await run.to_the_end(progress)
    return run.figures()


def kept_world(directory: Path) -> OracleWorld:
    """Of an earlier run, to judge its journal again."""
    return msgspec.json.decode((directory / "world.json").read_bytes(), type=OracleWorld)


class _Run:
    def __init__(self, wanted: Torture, journal: JournalFile, world: World, hosts: Hosts) -> None:
        self._wanted = wanted
        self._journal = journal
        self._world = world
        self._hosts = hosts
        self._dice = random.Random(wanted.seed)
        self._members: list[Member] = []
        self._clients: dict[tuple[str, int], AsyncClient] = {}
        self._blows: Counter[str] = Counter()
        self._points = deque(wanted.points)
        self._verbs = _verbs(wanted)
        self._began = time.monotonic()
        self._beginning_ms = wall_ms()
        self._made = 0
        self._stopping = False
        self._healed_at = 0
        self._asking = TimerAsking(
            world,
            write=journal.write,
            now_us=now_us,
            wall_ms=wall_ms,
            beginning_ms=self._beginning_ms,
            host=hosts.name,
            address=lambda number: self._members[number].name,
            connect=self._connect,
            foreign=Foreigner(wanted.store_url, journal.write),
        )

    @classmethod
    async def set_up(cls, stack: AsyncExitStack, directory: Path, wanted: Torture, journal: JournalFile) -> _Run:
        draws = Draws(wanted.seed)
        world = draw_world(
            Chance(draws),
            instances=wanted.servers,
            destinations=wanted.destinations,
            lease_seconds=wanted.lease_seconds,
        )
        hosts = await stack.enter_async_context(destinations_at(world.destinations, draws, journal.write))
        run = cls(wanted, journal, world, hosts)
        for number in range(wanted.servers):
            url = wanted.server_urls[number] if wanted.server_urls else wanted.store_url
            relay = await stack.enter_async_context(relay_to(_port_of(url))) if wanted.has_server else None
            settings = {**settings_of(world), **wanted.settings, "store": _through(url, relay)}
            member = Member(
                number,
                directory,
                settings,
                relay=relay,
                dice=run._dice,
                write=journal.write,
                points=run._points,
                surroundings=wanted.surroundings,
            )
            member.arms = wanted.is_armed
            stack.push_async_callback(member.kill_and_reap)
            run._members.append(member)
            await member.ready()
            for timeout in TIMEOUTS:
                client = AsyncClient(member.url, TOKEN, timeout=timeout / 1000, retries=0)
                run._clients[member.name, timeout] = await stack.enter_async_context(client)
        return run

    # --- the whole ------------------------------------------------------------------------------------------

    async def to_the_end(self, progress: Callable[[float, int], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(member.watch()) for member in self._members]
            users = [tasks.create_task(self._use(number)) for number in range(self._wanted.clients)]
            striking = tasks.create_task(self._strike_on())
            while (spent := time.monotonic() - self._began) < self._wanted.seconds:
                await asyncio.sleep(0.5)
                progress(spent, sum(self._all_blows().values()))
            self._stopping = True
            await striking
            await asyncio.gather(*users)
            for member in self._members:
                await member.heal()
            await self._hosts.heal()
            self._healed_at = now_us()
            await self._rest()
            await self._look()
            for member in self._members:
                if (code := await member.close()) != 0:
                    member.failures.append(f"{member.name} ended with {code} when it was stopped")
            for task in watching:
                task.cancel()

    @property
    def oracle_world(self) -> OracleWorld:
        return oracle_world(self._world, self._hosts.by_name)

    def figures(self) -> Figures:
        verdict = judge(self._journal.events, self.oracle_world)
        exits = [Violation("exit", member.name, failure) for member in self._members for failure in member.failures]
        return figures_of(
            self._journal.events,
            [*exits, *verdict],
            store=urlsplit(self._wanted.store_url).scheme,
            seconds=time.monotonic() - self._began,
            blows=self._all_blows(),
            points=sum((member.reached for member in self._members), Counter()),
            starved_seconds=sum(member.starved_us for member in self._members) / 1_000_000,
        )

    def _all_blows(self) -> Counter[str]:
        return sum((member.blows for member in self._members), self._blows.copy())

    async def _rest(self) -> None:
        """Until nothing is pending but what is due much later; the oracle judges what still is after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while await self._is_pending():  # noqa: ASYNC110 - the store is asked, nobody tells
                    await asyncio.sleep(0.2)
        owners_by = self._healed_at + round((self._world.lease_seconds + 2.5) * 1_000_000)
        await asyncio.sleep(max(0, owners_by - now_us()) / 1_000_000)

    async def _is_pending(self) -> bool:
        client = self._clients[self._members[0].name, max(TIMEOUTS)]
        try:
            page = await client.timers.list(states=PENDING, due_to=to_instant(wall_ms() + SOON_MS), limit=1)
        except MainspringError:
            return True
        return bool(page.timers)

    async def _look(self) -> None:
        ids = {item.id: None for event in self._journal.events if isinstance(event, Invoke) for item in event.items}
        by_pid = {str(member.pid): member.name for member in self._members}
        left = await read_left(
            self._wanted.store_url,
            ids,
            healed_at=self._healed_at,
            alive=tuple(by_pid.values()),
            name_of=lambda owner: by_pid.get(owner.split("-")[-2], "") if "-" in owner else "",
        )
        self._journal.write(left)

    # --- users ----------------------------------------------------------------------------------------------

    async def _use(self, number: int) -> None:
        chance = Chance(Draws(self._wanted.seed * 1000 + number))
        # Most ids have one user: what several may have done to one is never known for sure, and excuses much.
        pool = [f"c{number}-{place}" for place in range(12)] + [f"t{place}" for place in range(2)]
        verbs = {"create": VERBS["create"]} | {v: VERBS[v] for v in chance.some("verb", self._verbs)}
        unawaited: set[asyncio.Task[None]] = set()
        while not self._stopping:
            await asyncio.sleep(chance.one("pause", PAUSES) / 1000)
            at = round((time.monotonic() - self._began) * 1000)
            verb = chance.weighted("which verb", verbs)
            drawn = draw_operation(chance, self._world, verb, client=number, at=at, pool=pool, shared=at + 1000)
            for operation in drawn:
                await asyncio.sleep((operation.at - at) / 1000)
                self._made += 1
                carrying = self._asking.carry_out(f"{operation.verb}-{self._made}", operation)
                if operation.awaits or len(unawaited) >= UNAWAITED:
                    await carrying
                else:
                    task = asyncio.get_running_loop().create_task(carrying)
                    unawaited.add(task)
                    task.add_done_callback(unawaited.discard)
        await asyncio.gather(*unawaited)

    def _connect(self, name: str, operation: Operation, node: str) -> AsyncClient:
        return self._clients[node, operation.timeout]

    # --- blows ----------------------------------------------------------------------------------------------

    async def _strike_on(self) -> None:
        kinds = {kind: weight for kind, weight in self._wanted.blows.items() if self._can(kind)}
        lasting: set[asyncio.Task[None]] = set()
        while not self._stopping:
            await asyncio.sleep(self._dice.uniform(0.3, 2.5))
            kind = self._dice.choices(list(kinds), list(kinds.values()))[0]
            task = asyncio.get_running_loop().create_task(self._strike(kind))
            lasting.add(task)
            task.add_done_callback(lasting.discard)
        await asyncio.gather(*lasting)

    def _can(self, kind: str) -> bool:
        return self._wanted.has_server or kind not in ("cut", "hold", "database")

    async def _strike(self, kind: str) -> None:
        lease = self._world.lease_seconds
        if kind == "database":
            await self._restart_database()
            return
        victims = self._members if self._dice.random() < 0.1 else [self._dice.choice(self._members)]
        for member in victims:
            if kind == "kill":
                if not (self._wanted.points and member.is_armed):
                    member.kill()
            elif kind == "stop":
                member.stop()
            elif not member.is_troubled:
                member.is_troubled = True
                seconds = self._dice.uniform(0.2, 2.0) * lease
                await (member.pause(seconds) if kind == "pause" else member.part(kind, min(seconds, 1.5 * lease)))
                member.is_troubled = False

    async def _restart_database(self) -> None:
        assert self._wanted.restart_database is not None
        self._blows["database"] += 1
        at = now_us()
        await asyncio.to_thread(self._wanted.restart_database)
        self._journal.write(Fault(at=at, until=now_us(), kind="store", mode="refuse"))


def _verbs(wanted: Torture) -> list[str]:
    """What users may ask for. In half of the runs nobody acts on all timers at once: that could excuse anything."""
    are_wide = random.Random(f"{wanted.seed}/wide").random() < 0.5
    return [
        verb
        for verb in VERBS
        if (are_wide or not verb.startswith("bulk-")) and (verb != "transaction" or has_transactions(wanted.store_url))
    ]


def _port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def _through(url: str, relay: Relay | None) -> str:
    """The same store, by way of the relay. A replica set of one would tell its clients where it really is."""
    if relay is None:
        return url
    changed = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{relay.port}", url, count=1)
    return re.sub(r"replicaSet=\w+", "directConnection=true", changed)
