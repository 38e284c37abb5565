"""How fast timers are accepted: one per request, and a thousand per request."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import apsw

from bench.figures import Aim, Figure, Setting
from bench.load import LoadResult, run_load
from bench.processes import Running, echo, server
from bench.timers import BATCH, FAR_MS, NOWHERE, batch_requests, create_all, create_request, now_ms, pending_timer
from mainspring.model import Namespace
from mainspring.stores.plan import Value
from mainspring.stores.sqlite import SQLiteStore
from mainspring.stores.sqlite.connection import Database
from mainspring.stores.sqlite.rows import TIMER_COLUMNS, timer_row
from mainspring.stores.sqlite.writer import CACHE_KIB

CONNECTIONS = (64, 256)
BATCH_CONNECTIONS = 4


async def single_creates(setting: Setting) -> list[Figure]:
    """One timer per request over 64 connections, and over 256, against a plain ASGI echo of the same bytes."""
    rounds, seconds = setting.size(5, 1), 3.0 if not setting.quick else 0.5
    limits: dict[int, list[LoadResult]] = {count: [] for count in CONNECTIONS}
    results: dict[int, list[LoadResult]] = {count: [] for count in CONNECTIONS}
    async with server(setting.directory) as product, echo(setting.directory) as plain:
        for turn in range(rounds):
            for count in CONNECTIONS:
                setting.say(f"round {turn + 1} of {rounds}: {count} connections")
                limits[count].append(await create_load(plain, f"echo-{turn}", seconds, connections=count))
                results[count].append(await create_load(product, f"single-{count}-{turn}", seconds, connections=count))
    return [figure for count in CONNECTIONS for figure in _single_figures(count, results[count], limits[count])]


def _single_figures(connections: int, results: list[LoadResult], limits: list[LoadResult]) -> list[Figure]:
    return [
        Figure(
            benchmark="single creates",
            what=f"requests, {connections} connections",
            unit="/s",
            measured=median(result.rate for result in results),
            limit=median(result.rate for result in limits),
            aim=Aim("ratio", "least", 0.5),
        ),
        Figure(
            benchmark="single creates",
            what=f"99 % answered within, {connections} connections",
            unit="ms",
            measured=median(result.p99_ms for result in results),
            limit=median(result.p99_ms for result in limits),
            aim=Aim("measured", "most", 25) if connections == min(CONNECTIONS) else None,
        ),
    ]


async def create_load(target: Running, name: str, seconds: float, *, connections: int = CONNECTIONS[0]) -> LoadResult:
    """Create different timers as fast as so many connections can."""
    execute_at = now_ms() + FAR_MS
    result = await run_load(
        "127.0.0.1",
        target.port,
        lambda index: create_request(f"{name}-{index}", execute_at + index, NOWHERE),
        connections,
        seconds,
    )
    if result.errors:
        raise RuntimeError(f"Expected every create to succeed, got {result}")
    return result


async def batch_creates(setting: Setting) -> list[Figure]:
    """A thousand timers per request, against bare inserts of the same rows, a thousand per transaction."""
    rounds, count = setting.size(5, 1), setting.size(50_000, 5_000)
    rates: list[float] = []
    limits: list[float] = []
    bare = await _bare_database(setting.directory / "bare.db")
    async with server(setting.directory) as product:
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}")
            instants = [now_ms() + FAR_MS + index for index in range(count)]
            limits.append(await asyncio.to_thread(_insert_bare, bare, _rows(f"batch-{turn}", instants)))
            requests = batch_requests(f"batch-{turn}", instants, NOWHERE)
            rates.append(await create_all(product, requests, connections=BATCH_CONNECTIONS) * BATCH)
    return [
        Figure(
            benchmark="batch creates",
            what="timers",
            unit="/s",
            measured=median(rates),
            limit=median(limits),
            aim=Aim("ratio", "least", 0.75),
        ),
    ]


async def _bare_database(path: Path) -> Database:
    """An empty database with the schema of the product."""
    await SQLiteStore(str(path)).migrate()
    return Database(str(path), 2_000)


def _rows(name: str, instants: list[int]) -> list[tuple[Value, ...]]:
    namespace = Namespace(
        name="default", first_shard=0, shard_count=16, created_at=0, updated_at=0, secrets=(), grouped=True
    )
    return [timer_row(pending_timer(namespace, f"{name}-{i}", instant)) for i, instant in enumerate(instants)]


def _insert_bare(database: Database, rows: list[tuple[Value, ...]]) -> float:
    """Rows per second with the product's own connection settings. The WAL is emptied outside of the measured time."""
    connection = database.connect(cache_kib=CACHE_KIB)
    insert = f"INSERT INTO timers ({TIMER_COLUMNS}) VALUES ({','.join('?' * len(rows[0]))})"
    started_at = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, rows[start : start + BATCH])
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - started_at
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return len(rows) / elapsed
