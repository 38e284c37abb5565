"""How much room a pending timer takes on disk, where the database tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pymongo import MongoClient
from tests.servers.server import Server

from bench.timers import FAR_MS, now_ms, pending_timer
from mainspring.clock import SystemClock
from mainspring.model import Namespace
from mainspring.store import BATCH_LIMIT, Put
from mainspring.stores import store_from_url

MONTH_MS = 30 * 86_400_000


async def bytes_of_a_timer(database: Server | None, directory: Path, count: int) -> float | None:
    """From so many, in a place of their own; None if the database does not tell. No database: SQLite."""
    url = f"sqlite:///{directory / 'room.db'}" if database is None else database.fresh()
    size_of = _size_of(database, url)
    if size_of is None:
        return None
    await _fill(url, 0)  # only the schema
    before = await asyncio.to_thread(size_of)
    await _fill(url, count)
    return (await asyncio.to_thread(size_of) - before) / count


async def _fill(url: str, count: int) -> None:
    namespace = Namespace(
        name="default", first_shard=0, shard_count=16, created_at=0, updated_at=0, secrets=(), grouped=True
    )
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    first = now_ms() + FAR_MS
    # A fixed step that shares no factor with the count: the rows arrive in no order of their instants.
    instants = [first + index * 7_919 % count * MONTH_MS // count for index in range(count)]
    for start in range(0, count, BATCH_LIMIT):
        batch = enumerate(instants[start : start + BATCH_LIMIT], start)
        await store.write([Put(pending_timer(namespace, f"kept-{number}", at), 0) for number, at in batch])
    await store.close()


def _size_of(database: Server | None, url: str) -> Callable[[], int] | None:
    place = url.partition("?")[0].rpartition("/")[2]
    if database is None:
        path = Path(url.removeprefix("sqlite:///"))
        return lambda: _files(path.parent, f"{path.name}*")
    files = database.directory / "data"
    match database.name:
        case "postgresql":
            return lambda: sum(_files(found, "*") for found in (files / "base").iterdir())
        case "mysql":
            return lambda: _files(files / place, "*.ibd")
        case "mongodb":
            return lambda: _mongodb(url)
        case _:
            return None


def _files(directory: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in directory.glob(pattern))


def _mongodb(url: str) -> int:
    with MongoClient[dict[str, int]](url) as client:
        client.admin.command("fsync")  # sizes are those of its last checkpoint
        told = client.get_default_database().command("dbStats")
        return int(told["storageSize"] + told["indexSize"])
