"""Random sequences of calls on every store, against a plain model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mainspring.clock import SystemClock
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.stores.sqlite import SQLiteStore
from mainspring.testing.store_machines import record_machine, timer_machine


async def _open_memory() -> Store:
    return MemoryStore(SystemClock())


class _FileStore(SQLiteStore):
    """Takes its directory with it when it is closed: every example has a new one."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        super().__init__(str(Path(self._directory.name) / "test.db"))

    async def close(self) -> None:
        await super().close()
        self._directory.cleanup()


async def _open_sqlite() -> Store:
    store = _FileStore()
    await store.open()
    return store


TestMemoryTimers = timer_machine(_open_memory).TestCase
TestMemoryRecords = record_machine(_open_memory).TestCase
TestSQLiteTimers = timer_machine(_open_sqlite).TestCase
TestSQLiteRecords = record_machine(_open_sqlite).TestCase
