"""A record of a key that cannot be read: the work does not run, and somebody is told why."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mainspring import unreadable
from mainspring.errors import StoreUnavailable
from mainspring.idempotency import IdempotentProcessor, SQLiteStore


def test_a_record_that_cannot_be_read_is_told_of_and_its_work_does_not_run(tmp_path: Path) -> None:
    unreadable.forget()
    ran: list[object] = []
    store = SQLiteStore(str(tmp_path / "keys.db"))
    processor = IdempotentProcessor(store, ran.append, scope="spoiled")
    processor.process(1)
    connection = apsw.Connection(str(tmp_path / "keys.db"))
    connection.execute("UPDATE records SET value = x'7bff'")
    connection.close()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="another value"):
            processor.process(1)
    assert [one.kind for one in unreadable.known()] == ["idempotency"]
    processor.process(2)
    assert ran == [1, 2]
    store.close()
