"""Fetches that a unit has asked for, from before its commit until they are created.

    keep ──▶ commit of the origin ──▶ create the fetches ──▶ remove

A crash may come between any two steps. The next program that looks finds what is left, and the origin's record decides:
a fetch it waits for is created, again if need be, which makes no second call; one that it does not wait for was
never committed, and never will be, because the origin's record is written anew before the entry is removed.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.clock import Clock
from mainspring.fetches.messages import CreateFetch
from mainspring.store import RecordStore, all_records
from mainspring.unreadable import read_record

OUTBOX: Final = "origin-outbox"
"""The collection. It is listed, and nearly always empty."""
PAGE: Final = 100


class Entry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one unit has asked for. Instants are epoch milliseconds."""

    origin: str
    origin_id: str
    at: int
    fetches: tuple[CreateFetch, ...]


class Kept(Struct, frozen=True):
    """An entry as it is stored."""

    key: str
    version: int
    entry: Entry


class Outbox:
    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def keep(self, origin: str, origin_id: str, fetches: Sequence[CreateFetch]) -> Kept:
        """Before the commit. Each try of a unit has an entry of its own."""
        now = self._clock.now_ms()
        entry = Entry(origin=origin, origin_id=origin_id, at=now, fetches=tuple(fetches))
        key = f"{now:015d}-{secrets.token_hex(8)}"
        await self._records.put_record(OUTBOX, key, msgspec.json.encode(entry), expect=0, now=now)
        return Kept(key, 1, entry)

    async def remove(self, kept: Kept) -> None:
        await self._records.delete_record(OUTBOX, kept.key, expect=kept.version, now=self._clock.now_ms())

    async def left(self, *, older_than: int) -> AsyncIterator[Kept]:
        """The entries that were kept before an instant, oldest first: so their keys are ordered."""
        async for record in all_records(self._records, OUTBOX, self._clock.now_ms, limit=PAGE):
            entry = read_record(OUTBOX, record, _read)
            if entry is None:
                continue
            if entry.at >= older_than:
                return
            yield Kept(record.key, record.version, entry)


_read = msgspec.json.Decoder(Entry).decode
