"""Claims in this process, for tests and for programs that are a single process. They are gone when it ends."""

from __future__ import annotations

from collections import deque
from threading import Lock

from msgspec import Struct

from mainspring.clock import SystemClock
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.entries import Entry, decoded
from mainspring.model import Record


class _Kept(Struct):
    record: Record
    entry: Entry | None = None
    """What the record says, once somebody has peeked."""


class InMemoryStore:
    """Serves threads and event loops alike: nothing in it waits."""

    database = "memory"
    tables = ""
    looks_first = True

    def __init__(self) -> None:
        self._records: dict[str, _Kept] = {}
        self._notes: dict[str, Record] = {}
        self._expiring: deque[tuple[int, str]] = deque()
        self._lock = Lock()
        self._clock = SystemClock()

    def __len__(self) -> int:
        return len(self._records)

    def blocking(self) -> ClaimStore:
        return self

    def waiting(self) -> ClaimStore:
        return self

    def close(self) -> None:
        """Nothing to let go of."""

    async def aclose(self) -> None:
        """Nothing to let go of."""

    async def time(self) -> int:
        return self._clock.now_ms()

    def peek(self, address: str) -> Entry | None:
        kept = self._records.get(address)
        if kept is None:
            return None
        expires_at = kept.record.expires_at
        if expires_at is not None and expires_at <= self._clock.now_ms():
            return None
        if kept.entry is None:
            kept.entry = decoded(kept.record)
        return kept.entry

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        with self._lock:
            present = self._present(address, now)
            if present is None:
                self._records[address] = _Kept(Record(address, value, version))
            return present

    async def look(self, address: str, *, now: int) -> Record | None:
        with self._lock:
            return self._present(address, now)

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        with self._lock:
            present = self._present(address, now)
            if present is None or present.version != expect:
                return False
            self._records[address] = _Kept(Record(address, value, expect + 1, expires_at))
            if expires_at is not None:
                self._expiring.append((expires_at, address))
            self._sweep(now)
            return True

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        with self._lock:
            present = self._present(address, now)
            if present is None or present.version != expect:
                return False
            del self._records[address]
            return True

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        self._notes.setdefault(address, Record(address, value, 1))

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        with self._lock:
            return [self._notes[address] for address in sorted(self._notes) if address > after][:limit]

    async def strike(self, note: Record, *, now: int) -> None:
        self._notes.pop(note.key, None)

    def _present(self, address: str, now: int) -> Record | None:
        kept = self._records.get(address)
        if kept is None:
            return None
        expires_at = kept.record.expires_at
        if expires_at is None or expires_at > now:
            return kept.record
        del self._records[address]
        return None

    def _sweep(self, now: int) -> None:
        """Each write looks at the two oldest records and removes what has expired, so that it cannot pile up."""
        for _ in range(min(2, len(self._expiring))):
            expires_at, address = self._expiring[0]
            if expires_at > now:
                self._expiring.rotate(-1)  # processors may differ in how long they keep
                continue
            self._expiring.popleft()
            kept = self._records.get(address)
            if kept is not None and kept.record.expires_at == expires_at:
                del self._records[address]
