"""On MongoDB: the log of its replication has every write, in the order in which they were committed.

Transactions are in it with the session that made them. All begins and outcomes of a server are made in one session, and
its claims name that session: it is the writer here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bson import Timestamp
from pymongo import AsyncMongoClient

from mainspring.stores.mongodb import MongoDBStore
from mainspring.stores.mongodb.connection import database_name
from tests.cluster.stale_writes.audit import Claim, Kind, Write

Document = dict[str, Any]


class MongoDBAudit:
    def __init__(self, url: str) -> None:
        self._url = url
        self._database = database_name(url)
        self._since = Timestamp(0, 0)

    async def watch(self, servers: int) -> Sequence[str]:
        await MongoDBStore(self._url).migrate()
        async with AsyncMongoClient[Document](self._url) as client:
            [newest] = await client["local"]["oplog.rs"].find().sort("$natural", -1).limit(1).to_list()
            self._since = newest["ts"]
        return [self._url] * servers

    async def writes(self) -> list[Write]:
        return [step for step in await self._replayed() if isinstance(step, Write)]

    async def claims(self) -> list[Claim]:
        return sorted(step for step in await self._replayed() if isinstance(step, Claim))

    async def close(self) -> None:
        """Nothing was made that would be left."""

    async def _replayed(self) -> list[Write | Claim]:
        replay = _Replay(self._database)
        steps: list[Write | Claim] = []
        async with AsyncMongoClient[Document](self._url) as client:
            async for entry in client["local"]["oplog.rs"].find({"ts": {"$gt": self._since}}).sort("$natural", 1):
                steps += replay.steps(entry)
        return steps


class _Replay:
    """Shards and timers as they are after each entry of the log."""

    def __init__(self, database: str) -> None:
        self._names = {f"{database}.mainspring_{name}": name for name in ("shards", "timers", "history")}
        self._documents: dict[tuple[str, int | str], Document] = {}
        self._claims: dict[int, Claim] = {}

    def steps(self, entry: Document) -> Iterator[Write | Claim]:
        writer = _name(entry.get("lsid"))
        for operation in entry["o"].get("applyOps", [entry]):
            match self._names.get(operation["ns"]):
                case "shards":
                    before, after = self._apply("shards", operation)
                    if after.get("version", 0) > before.get("version", 0):
                        claim = Claim(after["_id"], after["version"], _name(after["session"]))
                        self._claims[claim.shard_id] = claim
                        yield claim
                case "timers":
                    before, after = self._apply("timers", operation)
                    if after.get("state") == "running" and after["attempts"] > before.get("attempts", 0):
                        yield self._write("begin", after["shard_id"], writer, after["fence"])
                case "history" if operation["op"] == "i":
                    yield self._write("outcome", operation["o"]["_id"]["shard_id"], writer)

    def _apply(self, collection: str, operation: Document) -> tuple[Document, Document]:
        """The document before and after; nothing where there is none."""
        what = operation["o"]
        # Deletes have no second part; what they delete is named in the first.
        named: Document = operation.get("o2") or what
        identity = named["_id"]
        before = self._documents.pop((collection, identity), {})
        if operation["op"] == "d":
            return before, {}
        after = _patched(before, what["diff"]) if "$v" in what else what
        self._documents[collection, identity] = after
        return before, after

    def _write(self, kind: Kind, shard_id: int, writer: str, fence: int | None = None) -> Write:
        claim = self._claims.get(shard_id)
        return Write(kind, shard_id, writer, claim and claim.version, claim and claim.owner, fence)


def _patched(document: Document, diff: Document) -> Document:
    """Fields that the server names as inserted, updated, deleted, or changed inside (`s` and their name)."""
    after = {**document, **diff.get("i", {}), **diff.get("u", {})}
    inside = {key[1:]: part for key, part in diff.items() if len(key) > 1 and not part.get("a")}
    after |= {name: _patched(document[name], part) for name, part in inside.items()}
    return {name: value for name, value in after.items() if name not in diff.get("d", {})}


def _name(session: Document | None) -> str:
    return session["id"].hex() if session else ""
