"""Who is compared: each with its store and its worker, as long as it is its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.servers.postgresql import PostgreSQL
from tests.servers.redis import Redis
from tests.servers.server import Server

from bench.creates import create_load
from bench.peers.programs import Program, node_programs, program, python_programs
from bench.processes import Running, family_of, server
from bench.timers import BATCH, NOWHERE, batch_requests, create_all

BULK_SECONDS = 300.0


class Memory(NamedTuple):
    """Resident, in millions of bytes. What processes share is counted once."""

    server: float
    store: float


class Contender(Protocol):
    """One that is running."""

    async def create(self, name: str, seconds: float) -> float:
        """Create jobs one by one, from 64 callers at once, due in a day. How many a second."""
        ...

    async def bulk(self, name: str, count: int, *, first: int, rate: int, url: str) -> float:
        """Create jobs many at a time, due so many a second from `first` on, or all at once if `rate` is 0. Returns how
        many were created a second."""
        ...

    def memory(self) -> Memory: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One that can be run. `obtain` raises `Unobtainable` if it cannot be had."""

    name: str
    durability: str
    obtain: Callable[[Path], None]
    run: Callable[[Path], AbstractAsyncContextManager[Contender]]
    has_bulk: bool = True


class Ours:
    def __init__(self, product: Running) -> None:
        self._product = product

    async def create(self, name: str, seconds: float) -> float:
        return (await create_load(self._product, name, seconds)).rate

    async def bulk(self, name: str, count: int, *, first: int, rate: int, url: str) -> float:
        instants = [first + (index * 1_000 // rate if rate else 0) for index in range(count)]
        requests = batch_requests(name, instants, url)
        return await create_all(self._product, requests, seconds=BULK_SECONDS) * min(BATCH, count)

    def memory(self) -> Memory:
        return Memory(_resident_mb(self._product.pid), 0.0)


class Library:
    """A client, a worker and a store, each in processes of their own."""

    def __init__(self, client: Program, worker: Program, store: Server) -> None:
        self._client = client
        self._worker = worker
        self._store = store

    async def create(self, name: str, seconds: float) -> float:
        return (await self._client.ask("create", seconds, NOWHERE, seconds=seconds + 60)).rate

    async def bulk(self, name: str, count: int, *, first: int, rate: int, url: str) -> float:
        return (await self._client.ask("bulk", count, first, rate, url, seconds=BULK_SECONDS)).rate

    def memory(self) -> Memory:
        return Memory(_resident_mb(self._worker.pid), _resident_mb(self._store.pid))


@contextlib.asynccontextmanager
async def _ours(directory: Path) -> AsyncIterator[Contender]:
    async with server(directory) as product:
        yield Ours(product)


@contextlib.asynccontextmanager
async def _on_node(file: str, store: Server, directory: Path) -> AsyncIterator[Contender]:
    place = node_programs(directory.parent)
    async with _started(store) as url:
        log = directory / "log"
        async with (
            program(("node", file, "worker", url), directory=place, log=log) as worker,
            program(("node", file, "client", url), directory=place, log=log) as client,
        ):
            yield Library(client, worker, store)


@contextlib.asynccontextmanager
async def _celery(directory: Path) -> AsyncIterator[Contender]:
    python = str(python_programs() / "python")
    place = Path(__file__).parent
    store = Redis()
    async with _started(store) as url:
        log, environment = directory / "log", {"REDIS_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
        command = (python, "-m", "celery", "--quiet", "--app", "celery_program", "worker", "--loglevel", "warning")
        async with (
            program(command, directory=place, log=log, environment=environment) as worker,
            program((python, "celery_program.py"), directory=place, log=log, environment=environment) as client,
        ):
            yield Library(client, worker, store)


@contextlib.asynccontextmanager
async def _started(store: Server) -> AsyncIterator[str]:
    """The URL of an empty place."""
    with store:
        await asyncio.to_thread(store.obtain)
        await asyncio.to_thread(store.start)
        yield await asyncio.to_thread(store.fresh)


def _obtain_bullmq(directory: Path) -> None:
    with Redis() as redis:
        redis.obtain()
    node_programs(directory)


def _obtain_pgboss(directory: Path) -> None:
    with PostgreSQL() as postgresql:
        postgresql.obtain()
    node_programs(directory)


def _obtain_celery(_: Path) -> None:
    with Redis() as redis:
        redis.obtain()
    python_programs()


OURS = Entry("Mainspring, SQLite", "fsync on every commit", lambda _: None, _ours)
BULLMQ = Entry(
    *("BullMQ, Redis", "fsync always", _obtain_bullmq),
    lambda directory: _on_node("bullmq.mjs", Redis(durable=True), directory),
)
BULLMQ_RELAXED = Entry(
    *("BullMQ, Redis", "fsync every second", _obtain_bullmq),
    lambda directory: _on_node("bullmq.mjs", Redis(), directory),
)
PGBOSS = Entry(
    *("pg-boss, PostgreSQL", "fsync on every commit", _obtain_pgboss),
    lambda directory: _on_node("pgboss.mjs", PostgreSQL(durable=True), directory),
)
CELERY = Entry("Celery, Redis", "fsync every second", _obtain_celery, _celery, has_bulk=False)
ENTRIES = (OURS, BULLMQ, BULLMQ_RELAXED, PGBOSS, CELERY)


def _resident_mb(root: int) -> float:
    """Of a process and its descendants. The kernel divides what several have in common among them."""
    kib = 0
    for pid in family_of(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib * 1024 / 1e6
