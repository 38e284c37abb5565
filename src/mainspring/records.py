"""The documents of a program, in the same store as its timers: each with a key and a version.

    carts = ms.records("carts", Cart)
    found = await carts.get("ann")                                   # Document(key, value, version), or None
    await carts.put("ann", Cart(...))                                # whatever is there
    await carts.put("ann", changed, expect=found.version)            # Conflict if somebody was faster

A write is compare-and-set on the version, which no other document of that key has ever had or will have. So programs
that share a store, and tasks of one program, never overwrite what they have not seen. `expect=0`: there is none yet.
When a write raises `StoreUnavailable`, it may have happened or may still happen: read, and decide again.

Values can be anything that msgspec reads as the type of the collection: dataclasses, structs, dicts. There are no
indexes: store a value under the key by which you will look it up.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from mainspring.clock import Clock
from mainspring.errors import Conflict, InvalidInput, plain_words
from mainspring.model import Record
from mainspring.store import RecordStore, all_records, first_version
from mainspring.text import hides_something
from mainspring.unreadable import read_record

T = TypeVar("T")

NAME_LIMIT: Final = 64
KEY_LIMIT: Final = 255
_PAGE: Final = 100


class Document(Struct, Generic[T], frozen=True):
    """The current value, and the version needed to replace or remove it."""

    key: str
    value: T
    version: int


class Records(Generic[T]):
    """A collection of documents of one type. Made by `Mainspring.records`."""

    def __init__(self, records: RecordStore, clock: Clock, randomness: Random, name: str, kind: type[T] | Any) -> None:
        self._records = records
        self._clock = clock
        self._random = randomness
        self._collection = f"program:{_checked(name, 'name of a collection', NAME_LIMIT)}"
        try:
            self._read = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise InvalidInput(f"Expected a type that can be read from JSON, got {kind!r:.200}") from error

    async def get(self, key: str) -> Document[T] | None:
        """The document, or None. Raises `Conflict` if there is one that cannot be read as the collection's type."""
        record = await self._records.get_record(self._collection, _checked_key(key), now=self._clock.now_ms())
        if record is None:
            return None
        found = self._document(record)
        if found is None:
            raise Conflict(f"Record {self._collection}/{key} cannot be read: mainspring admin doctor says why")
        return found

    async def put(
        self, key: str, value: T, *, expect: int | None = None, expires_in: float | None = None
    ) -> Document[T]:
        """Write if the current version is `expect`; 0: if there is none; None: in any case. `expires_in` is in seconds.

        Raises `Conflict` if the version is another one: nothing was written.
        """
        if value is None:
            raise InvalidInput("Expected a value, got None: to remove a document, use delete")
        if expires_in is not None and (not _is_number(expires_in) or not 0 < expires_in < math.inf):
            raise InvalidInput(f"Expected expires_in to be more than 0 seconds, got {expires_in!r:.100}")
        if expect is not None:
            _check_version(expect)
        encoded = self._written(value)
        while True:
            now = self._clock.now_ms()
            present = expect
            if present is None:
                record = await self._records.get_record(self._collection, _checked_key(key), now=now)
                present = record.version if record else 0
            put = await self._records.put_record(
                self._collection,
                _checked_key(key),
                encoded,
                expect=present,
                now=now,
                expires_at=None if expires_in is None else now + round(expires_in * 1000),
                first=first_version(self._random),
            )
            if put is not None:
                return Document(key, value, put.version)
            if expect is not None:
                raise Conflict(
                    f"Document {key!r} does not have the expected version: it was changed, created or removed"
                )

    async def delete(self, key: str, *, expect: int) -> bool:
        """Remove it if it has that version. False if it does not."""
        _check_version(expect)
        return await self._records.delete_record(
            self._collection, _checked_key(key), expect=expect, now=self._clock.now_ms()
        )

    async def scan(self, *, after: str = "") -> AsyncIterator[Document[T]]:
        """All documents after a key, in key order. Those that cannot be read are skipped and set aside."""
        found = all_records(self._records, self._collection, self._clock.now_ms, after=after, limit=_PAGE)
        async for record in found:
            if (document := self._document(record)) is not None:
                yield document

    def _written(self, value: T) -> bytes:
        """What is stored. What could not be read back is refused here, instead of being missed later."""
        try:
            encoded = msgspec.json.encode(value)
            self._read(encoded)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            what = plain_words(str(error)) if isinstance(error, msgspec.ValidationError) else "it cannot be written"
            raise InvalidInput(f"Expected a value of the collection's type, got {value!r:.200}: {what}") from error
        return encoded

    def _document(self, record: Record) -> Document[T] | None:
        value = read_record(self._collection, record, self._read)
        return None if value is None else Document(record.key, value, record.version)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_version(expect: object) -> None:
    if not isinstance(expect, int) or isinstance(expect, bool):
        raise InvalidInput(f"Expected expect to be a version, which is a whole number, got {expect!r:.100}")


def _checked_key(key: str) -> str:
    return _checked(key, "key", KEY_LIMIT)


def _checked(text: str, what: str, limit: int) -> str:
    if type(text) is not str or not 1 <= len(text) <= limit or hides_something(text):
        raise InvalidInput(
            f"Expected a {what} of 1 to {limit} characters without control characters, got {text!r:.300}"
        )
    return text
