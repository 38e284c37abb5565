"""The verbs of both contracts on DynamoDB, each passed on to the module that knows how."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.clock import Clock, wall_ms
from mainspring.model import Attempt, Record, Shard, Timer, TimerKey
from mainspring.store import Begin, DuePage, Finish, ListPage, Position, Put, Remove, TimerFilter, Verdict, next_version
from mainspring.stores.containment import contained
from mainspring.stores.dynamodb import schema, statements
from mainspring.stores.dynamodb.address import Address
from mainspring.stores.dynamodb.client import Client
from mainspring.stores.dynamodb.fenced import Fenced
from mainspring.stores.dynamodb.items import row_key
from mainspring.stores.dynamodb.records import Records
from mainspring.stores.dynamodb.server_time import ServerTime
from mainspring.stores.dynamodb.statements import Statements
from mainspring.stores.dynamodb.timers import Timers
from mainspring.unreadable import Unreadable


@contained
class DynamoDBStore:
    """A `Store` in the tables of one prefix in one region."""

    def __init__(self, address: Address, *, clock: Clock) -> None:
        self._clock = clock
        self._client = Client(address)
        self._table = address.timers
        self._statements = Statements(self._client)
        self._fenced = Fenced(self._client)
        self._timers = Timers(self._client)
        self._records = Records(self._client)
        self._server_time = ServerTime()

    async def open(self) -> None:
        await self._client.open()
        try:
            await schema.migrate(self._client)
        except BaseException:
            await self._client.close()
            raise
        self._client.trust_credentials()

    async def close(self) -> None:
        await self._statements.close()
        await self._client.close()

    async def pending_migrations(self) -> list[str]:
        """The names of the migrations that the tables lack. Needs no open store."""
        return await self._with_client(migrating=False)

    async def migrate(self) -> list[str]:
        """Apply what is pending and name it. Needs no open store."""
        return await self._with_client(migrating=True)

    async def _with_client(self, *, migrating: bool) -> list[str]:
        client = Client(self._client.address)
        await client.open()
        try:
            migrations = await (schema.migrate(client) if migrating else schema.pending(client))
        finally:
            await client.close()
        return [f"{migration.number:04} {migration.name}" for migration in migrations]

    async def time(self) -> int:
        """See `server_time`. The request is the cheapest that DynamoDB has: the read of a row that does not exist."""
        asked_at = self._clock.monotonic()
        answer = await self._client.call("get_item", TableName=self._table, Key=row_key(-1, "#time"))
        answered_at = self._clock.monotonic()
        date: str | None = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self._server_time.narrow(date, asked_at=asked_at, answered_at=answered_at)
        return self._server_time.estimate(wall_ms=wall_ms(), monotonic=answered_at)

    # Timers

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        return await self._statements.run([statements.change(self._table, item) for item in changes])

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        return await self._timers.get(keys)

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        return await self._timers.damaged(keys)

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        return await self._timers.list_timers(shards, where, after=after, limit=limit)

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        return await self._timers.load_due(shard_id, until=until, after=after, limit=limit)

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        return await self._timers.next_due(shard_ids)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._fenced.begin(items)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._fenced.finish(items)

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        return await self._timers.history(key, before=before, limit=limit)

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        return await self._timers.prune_history(shard_id, older_than=older_than, limit=limit)

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        return await self._timers.shards(shard_ids)

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        """A claim is refused while a fenced transaction of the shard is open, and is repeated until that has ended."""
        return await self._statements.run([statements.claim(self._table, claim) for claim in claims])

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._statements.run([statements.release(self._table, claim) for claim in claims])

    # Records

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        return await self._records.get(collection, key, now=now)

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        record = Record(key, value, next_version(expect, first), expires_at)
        return record if await self._records.put(collection, record, expect=expect, now=now) else None

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        return await self._records.delete(collection, key, expect=expect, now=now)

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        return await self._records.scan(collection, now=now, after=after, limit=limit)
