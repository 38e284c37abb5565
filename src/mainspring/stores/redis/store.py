"""The verbs of the record contract, each one script.

A scan of a collection that other programs write (`jobs:meta`) first looks through all keys of the database for strings
that are not in the index yet, once for each scan from the beginning. In a database with many other keys
that takes a while; give such records a database of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mainspring.errors import Unsupported
from mainspring.model import Record
from mainspring.store import PAGE_BYTES, next_version
from mainspring.stores.collections import LOOKED_UP
from mainspring.stores.containment import cancellable, contained
from mainspring.stores.redis import scripts
from mainspring.stores.redis.address import Address
from mainspring.stores.redis.client import Client
from mainspring.stores.redis.no_timers import NoTimers
from mainspring.unreadable import Unreadable, each, readable, reason_of

WRITTEN_BY_OTHERS: Final = frozenset({"jobs:meta"})
"""The collections in which a plain string that another program writes is a record."""

Argument = str | bytes | int

_SCAN_STEP: Final = 50
_LOOK_STEP: Final = 1000
_GLOB: Final = re.compile(r"([*?\[\]\\^-])")


@cancellable
@contained
class RedisStore(NoTimers):
    """A `RecordStore`; the verbs of timers raise `Unsupported`."""

    def __init__(self, address: Address) -> None:
        self._client = Client(address)
        self._prefix = address.prefix
        redis = self._client.redis
        self._get = redis.register_script(scripts.GET)
        self._put = redis.register_script(scripts.PUT)
        self._delete = redis.register_script(scripts.DELETE)
        self._scan = redis.register_script(scripts.SCAN)
        self._adopt = redis.register_script(scripts.ADOPT)

    async def open(self) -> None:
        await self._client.check()

    async def close(self) -> None:
        await self._client.close()

    async def time(self) -> int:
        seconds, microseconds = await self._client.answer(self._client.redis.time())
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        answer = await self._client.answer(self._get(keys=self._keys(collection, key), args=[collection, key, now]))
        return None if answer is None else _record(key, *answer)

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
        expiry: Argument = "" if expires_at is None else expires_at
        arguments: list[Argument] = [collection, key, now, expect, value, expiry, record.version]
        written = await self._client.answer(self._put(keys=self._keys(collection, key), args=arguments))
        return record if written else None

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        if expect == 0:
            return False
        arguments: list[Argument] = [collection, key, now, expect]
        return bool(await self._client.answer(self._delete(keys=self._keys(collection, key), args=arguments)))

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        if collection in LOOKED_UP:
            raise Unsupported(f"Expected a collection that is listed, got {collection!r}, which is only looked up")
        if collection in WRITTEN_BY_OTHERS and not after:
            await self._look_for_others(collection, now)
        records: list[Record] = []
        last = after.encode()
        size = 0
        while len(records) < limit and size <= PAGE_BYTES:
            step = min(_SCAN_STEP, limit - len(records))
            arguments: list[Argument] = [collection, now, b"(" + last, step]
            reached, found = await self._client.answer(self._scan(keys=self._keys(collection, ""), args=arguments))
            some = readable(_records(collection, found))
            records += some
            size += sum(len(record.value) for record in some)
            if reached is None:
                break
            last = reached
        return records

    async def _look_for_others(self, collection: str, now: int) -> None:
        values = self._keys(collection, "")[0]
        pattern = _GLOB.sub(r"\\\1", values) + "*"
        cursor = 0
        while True:
            cursor, names = await self._client.answer(
                self._client.redis.scan(cursor, match=pattern, count=_LOOK_STEP, _type="string")
            )
            if names:
                keys = [name[len(values.encode()) :] for name in names]
                await self._client.answer(self._adopt(keys=self._keys(collection, ""), args=[collection, now, *keys]))
            if cursor == 0:
                return

    def _keys(self, collection: str, key: str) -> list[str]:
        """The keys of the value, its hash, and the index, which is '' if the collection has none."""
        own = f"{self._prefix}mainspring:"
        index = "" if collection in LOOKED_UP else f"{own}index:{collection}"
        return [f"{self._prefix}{collection}:{key}", f"{own}version:{collection}:{key}", index]


def _records(collection: str, found: Sequence[Sequence[bytes]]) -> list[Record | Unreadable]:
    """A key that somebody else wrote may not be text."""
    return each(
        found,
        lambda row: _record(row[0].decode(), *row[1:]),
        lambda row, error: Unreadable(collection, repr(row[0]), reason_of(error)),
    )


def _record(key: str, version: bytes, value: bytes, expires_at: bytes | None = None) -> Record:
    return Record(key, value, int(version), None if expires_at is None else int(expires_at))
