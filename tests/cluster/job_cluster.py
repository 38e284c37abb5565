"""Several servers on one store with jobs on all calendars, of which one after the other dies, or has its clock moved.

At the end each job's ledger is read and given to the checker, with the requests that came to the target. Clocks:

- The wall clock of a server is moved from inside of its process; see `inside/sitecustomize.py`. Nothing may follow from
  it, since engines follow the clock of the store.
- The clock of PostgreSQL is moved by a function that stands before its own `clock_timestamp`. Everybody follows that.
  While all servers are down, it makes an outage of an hour that takes no time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from zoneinfo import ZoneInfo

from mainspring.client import AsyncClient
from mainspring.clock import SystemClock, wall_ms
from mainspring.jobs.messages import Catchup, JobView, Overlap, RunView
from mainspring.jobs.registry import JOBS as JOBS_META
from mainspring.stores import store_from_url
from mainspring.testing.oracle.runs import Arrival, Outage, Violation, Watched, check, instants_of, span
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import ServerProcess
from mainspring.wire.instants import to_ms
from tests.support.sql_databases import Database

SERVERS = 3
HOUR_MS = 3_600_000
INSIDE = Path(__file__).parent / "inside"
ANSWER_SECONDS = 0.05
"""How long a call takes, so that a server that dies mostly dies with one in flight."""
REST_SECONDS = 30.0
DUE_MS = 1500
"""What was due so shortly before an outage may not have been begun."""


@dataclass(frozen=True)
class Wanted:
    """A job, and its calendar by brute force."""

    name: str
    schedule: str
    matches: Callable[[datetime], bool]
    overlap: Overlap = "skip"
    catchup: Catchup = "latest"
    window_seconds: float = 3600.0
    timezone: str = "UTC"
    seconds: bool = True


JOBS = (
    Wanted("second", "* * * * * *", lambda _: True, "allowAll", "all", 60.0),
    Wanted("second-in-turn", "* * * * * *", lambda _: True, "bufferAll"),
    Wanted("two", "*/2 * * * * *", lambda local: local.second % 2 == 0, "skip"),
    Wanted("three", "*/3 * * * * *", lambda local: local.second % 3 == 0, "allowAll", "none"),
    Wanted("five", "1-59/5 * * * * *", lambda local: local.second % 5 == 1, "bufferOne", "all", 30.0, "Asia/Kathmandu"),
    Wanted("minute", "* * * * *", lambda local: local.second == 0, "skip", "latest", seconds=False),
    Wanted("minute-none", "* * * * *", lambda local: local.second == 0, "skip", "none", seconds=False),
    Wanted("minute-all", "* * * * *", lambda local: local.second == 0, "skip", "all", 86_400.0, seconds=False),
)


class StoreClock:
    """The clock of a store: that of this machine, but for what a PostgreSQL was told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._moves = [(0.0, 0)]

    async def prepare(self) -> None:
        """Make the clock of the database movable."""
        place = self._url.rpartition("/")[2]
        await Database(self._url).run(
            "CREATE TABLE moved (by_ms bigint)",
            "INSERT INTO moved VALUES (0)",
            "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS"
            " 'SELECT pg_catalog.clock_timestamp() + (SELECT by_ms FROM public.moved) * interval ''1 ms'''",
            f"ALTER DATABASE {place} SET search_path = public, pg_catalog",
            "SELECT 1",
        )

    async def move(self, by_ms: int) -> None:
        """By how much it is ahead of this machine's from now on."""
        await Database(self._url).run(f"UPDATE moved SET by_ms = {by_ms}", "SELECT 1")
        self._moves.append((time.monotonic(), by_ms))

    def now_ms(self) -> int:
        return wall_ms() + self._moves[-1][1]

    def latest_ms(self, at: float) -> int:
        """How late it had ever been by this instant of the monotonic clock."""
        ahead = max(by_ms for moved_at, by_ms in self._moves if moved_at <= at)
        return wall_ms() - round((time.monotonic() - at) * 1000) + ahead


class JobCluster:
    """Use it within `async with`: every server is ended with the block."""

    def __init__(self, directory: Path, store_url: str, target: TargetServer) -> None:
        self.clock = StoreClock(store_url)
        self._directory = directory
        self._target = target
        self._settings = {"store": store_url, "lease_seconds": "3", "renew_seconds": "1", "log_level": "debug"}
        self._servers: dict[int, ServerProcess] = {}
        self._created: dict[str, JobView] = {}
        self._outages: list[Outage] = []

    async def __aenter__(self) -> JobCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            await server.kill()

    async def start(self, numbers: Iterable[int] = range(SERVERS)) -> None:
        started = {number: self._new_server(number) for number in numbers}
        self._servers |= started
        for server in started.values():
            assert await server.ready(), server.tail()

    def _new_server(self, number: int) -> ServerProcess:
        file = self._wall_clock(number)
        if not file.exists():
            self.move_wall_clock(number, 0)
        surroundings = {"PYTHONPATH": str(INSIDE), "MOVED_WALL_CLOCK": str(file)}
        return ServerProcess(self._directory / str(number), surroundings, **self._settings)

    def _wall_clock(self, number: int) -> Path:
        return self._directory / f"wall-clock-{number}"

    def move_wall_clock(self, number: int, seconds: int) -> None:
        """By how much that of a server is ahead from now on, also after it has died."""
        fresh = self._wall_clock(number).with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self._wall_clock(number))

    async def kill(self, number: int) -> None:
        await self._servers[number].kill()

    async def stop(self) -> None:
        for server in self._servers.values():
            assert await server.stop() == 0, server.tail()

    def client(self) -> AsyncClient:
        return self._servers[0].client()

    async def create(self, jobs: Iterable[Wanted]) -> None:
        async with self.client() as client:
            for job in jobs:
                self._created[job.name] = await client.jobs.create(
                    job.name,
                    job.schedule,
                    url=f"{self._target.url}/delay/{ANSWER_SECONDS}",
                    seconds=job.seconds,
                    timezone=job.timezone,
                    overlap=job.overlap,
                    catchup=job.catchup,
                    catchup_window_seconds=job.window_seconds,
                )

    async def write_record(self, name: str, value: bytes) -> None:
        """Into the registry, as another program does."""
        store = store_from_url(self._settings["store"], clock=SystemClock())
        await store.open()
        try:
            assert await store.put_record(JOBS_META, name, value, expect=0, now=wall_ms()) is not None
        finally:
            await store.close()

    async def blackout(self, ms: int) -> None:
        """All servers die, the store's clock passes over so much, and they come back."""
        down_at = self.clock.now_ms()
        for number in range(SERVERS):
            await self.kill(number)
        await self.clock.move(self.clock.now_ms() - wall_ms() + ms)
        await self.start()
        self._outages.append(Outage(down_at - DUE_MS, self.clock.now_ms()))

    async def jump(self, ms: int) -> None:
        """The store's clock is set, under the eyes of everybody."""
        before = self.clock.now_ms()
        await self.clock.move(before - wall_ms() + ms)
        if ms > 0:
            self._outages.append(Outage(before - DUE_MS, self.clock.now_ms() + DUE_MS))

    async def accounts(self, jobs: Sequence[Wanted]) -> list[Watched]:
        """Everything up to now, once it has come to rest, or ought to have."""
        until, deadline = self.clock.now_ms(), time.monotonic() + REST_SECONDS
        async with self.client() as client:
            while True:
                found = [await self._account(client, job, until) for job in jobs]
                open_ends = [violation for violation in violations(found) if violation.rule in OPEN_ENDS]
                if not open_ends or time.monotonic() > deadline:
                    return found
                await asyncio.sleep(0.5)

    async def _account(self, client: AsyncClient, job: Wanted, until: int) -> Watched:
        runs = [run async for run in client.jobs.iterate_runs(job.name, page_size=1000)]
        created_at = to_ms(self._created[job.name].created_at)
        zone = ZoneInfo(job.timezone)
        return Watched(
            job.name,
            instants_of(job.matches, after=created_at, until=until, zone=zone),
            [run for run in runs if span(run)[1] <= until],
            [arrival for arrival in self._arrivals(job.name) if int(arrival.launch_id.rpartition("@")[2]) <= until],
            job.catchup,
            job.overlap,
            round(job.window_seconds * 1000),
            self._outages,
        )

    def _arrivals(self, name: str) -> list[Arrival]:
        return [
            Arrival(
                request.headers["mainspring-launch-id"],
                request.headers["webhook-id"],
                self.clock.latest_ms(request.arrived_at),
            )
            for request in self._target.requests
            if request.headers["mainspring-job"] == name
        ]


OPEN_ENDS = {"hole", "unfinished"}
"""What may only be over a little later."""


def violations(accounts: Sequence[Watched]) -> list[Violation]:
    return list(chain.from_iterable(map(check, accounts)))


def report(accounts: Sequence[Watched]) -> str:
    """What is wrong, and the ledgers in which it is; times: scheduled, until, planned, started, finished."""
    lines = [str(violation) for violation in violations(accounts)]
    for account in accounts:
        if check(account):
            lines += [f"outages of {account.name}: {account.outages}", *map(_line, reversed(account.runs))]
    return "\n".join(lines)


def _line(run: RunView) -> str:
    times = (run.scheduled_at, run.scheduled_until, run.planned_at, run.started_at, run.finished_at)
    told = " ".join("-" if at is None else f"{at:%H:%M:%S.%f}"[:12] for at in times)
    return f"{run.launch_id} {told} {run.kind} {run.state} {run.reason} attempts={run.attempts} count={run.count}"
