"""Who changes the schema: one process at a time, under a lease that is taken with a conditional write.

Two nodes that are asked at once to create one table give it two ids, and then disagree about it for good. So only the
holder of the lease runs statements that define something. The lease's own table has an id that everybody computes
alike: created twice, it is the same table.

- The lease is given back when the work is done. After an error it is kept until it runs out: a statement whose answer
  was lost may still be spreading, and the next one has to come after it.
- The holder starts no statement that could end after its lease.
- Nodes hear of a table at different times, and know its name before they can read it: what fails because of that is
  repeated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import NAMESPACE_URL, uuid4, uuid5

from mainspring.errors import StoreUnavailable
from mainspring.stores.cassandra.connection import Connection, NotReady, Row

COLUMNS: Final = "lease int, holder text, PRIMARY KEY ((lease)) "
LEASE_SECONDS: Final = 60
DEFINITION_SECONDS: Final = 20.0
"""How long a defining statement may take: a schema changes more slowly than a row."""
WAIT_SECONDS: Final = 90.0
"""Longer than the lease of a process that has died with it."""
PAUSE_SECONDS: Final = 0.1


class MigrationLease:
    """Held inside `taken`. All of it blocks."""

    def __init__(self, connection: Connection, keyspace: str) -> None:
        self._connection = connection
        self._table = f"{keyspace}.mainspring_migration_lease"
        self._table_id = uuid5(NAMESPACE_URL, f"mainspring:{keyspace}")
        self._holder = str(uuid4())
        self._last_start = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        run_when_ready(
            self._connection,
            f"CREATE TABLE IF NOT EXISTS {self._table} ({COLUMNS}) WITH id = '{self._table_id}'",
        )
        self._take()
        yield
        # Not in a finally clause: see above.
        run_when_ready(self._connection, f"DELETE FROM {self._table} WHERE lease = 1 IF holder = '{self._holder}'")  # noqa: S608

    def run(self, statement: str) -> None:
        """A statement that only the holder may run."""
        if time.monotonic() > self._last_start:
            raise StoreUnavailable(f"Expected migrations to be done within {LEASE_SECONDS} s, got slower ones")
        self._connection.run(statement, seconds=DEFINITION_SECONDS)

    def _take(self) -> None:
        give_up = time.monotonic() + WAIT_SECONDS
        while True:
            # The lease begins after this instant, so it also ends later than we believe.
            asked = time.monotonic()
            [row] = run_when_ready(
                self._connection,
                f"INSERT INTO {self._table} (lease, holder) VALUES (1, '{self._holder}')"  # noqa: S608
                f" IF NOT EXISTS USING TTL {LEASE_SECONDS}",
            )
            # An answer that was lost may have been a yes: then our own name stands there.
            if row[0] or self._holder in row:
                self._last_start = asked + LEASE_SECONDS - DEFINITION_SECONDS
                return
            if asked > give_up:
                raise StoreUnavailable(f"Another process has been migrating for more than {WAIT_SECONDS} s")
            time.sleep(PAUSE_SECONDS)


def run_when_ready(connection: Connection, statement: str) -> list[Row]:
    """Run a statement on a table that others may be creating at this moment. It must be repeatable. Blocks."""
    give_up = time.monotonic() + DEFINITION_SECONDS
    while True:
        try:
            return connection.run(statement, seconds=DEFINITION_SECONDS)
        except NotReady:
            if time.monotonic() > give_up:
                raise
        time.sleep(PAUSE_SECONDS)
