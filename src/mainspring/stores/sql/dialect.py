"""Where the databases differ. `Dialect` renders SQL, `Session` speaks to one connection, `Driver` makes sessions.

Statements are written with `?` for every value; nothing else in them is a question mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from mainspring.errors import MainspringError
from mainspring.stores.plan import Value
from mainspring.stores.sql.rows import Row

Parameter = Value | list[Value]
"""PostgreSQL takes whole columns as arrays."""

LOCK_SECONDS = 3
"""How long a statement may wait for a lock. In truth only claims do: other statements skip rows that are held."""
IDLE_SECONDS = 2
"""How long an open transaction waits for its next statement before the server ends it: well below the lease, so that
an owner that froze inside of a transaction cannot hold up its successor; and shorter than who waits for its locks."""


class Undone(Exception):
    """Nothing of the transaction was written, for a reason that lies in a row. The session is as good as before."""


class Overtaken(Undone):
    """Somebody else inserted a row that was not there when this transaction looked: look again.

    The database says so by a duplicate key, or by a deadlock, if that row is locked by somebody who waits for a row
    of ours.
    """


class Held(Undone):
    """Somebody's open transaction holds a row, or the key of one that is to be inserted."""


class Unfit(Undone):
    """A value that the database cannot hold: too large, too long, or no text at all."""


class Denied(Undone):
    """The database does not want it, for a reason that we do not know, such as a trigger or a constraint of others.

    It may lie in one row. That row is unavailable: who knows when it will be wanted.
    """


class Statement(NamedTuple):
    sql: str
    parameters: Sequence[Parameter]


class Column(Struct, frozen=True):
    name: str
    kind: str
    """One of the keys of a dialect's `types`."""
    optional: bool = False


class Table(Struct, frozen=True):
    """A table as the migrations describe it. Indexes are named by their columns and not unique."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()


class Dialect(Protocol):
    clock: str
    """An expression: milliseconds since the epoch, by the server's clock."""
    primary_index: str
    """Behind a table name: use the primary key, whatever the statistics say."""
    skip_same_attempt: str
    """Behind an INSERT into the history: what is there already is no error."""
    current_schema: str
    """An expression: where tables without a qualified name are."""

    def render(self, sql: str) -> str:
        """Turn `?` into the placeholders of the driver."""
        ...

    def keys(self, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        """A condition that holds for the rows with these keys."""
        ...

    def values(self, columns: Sequence[str], rows: Sequence[Row]) -> Statement:
        """What stands behind `INSERT INTO table (columns)`."""
        ...

    def for_each(self, query: str, numbers: Sequence[int]) -> Statement:
        """The one value that `query` finds for each number, which stands at `{}` in it; all of them in this order."""
        ...

    def delete(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        """Remove the rows with these primary keys, and look at no other row: somebody may hold it."""
        ...

    def text(self, column: str) -> str:
        """An expression that reads a name column as text."""
        ...

    def create_table(self, table: Table, full_name: str) -> list[str]: ...


class Session(Protocol):
    """One connection. After an error it is not used again."""

    share_lock: str
    """What ends a SELECT that keeps others from changing its rows; rows that somebody is changing are left out."""
    row_lock: str
    """What ends a SELECT whose rows are to be changed; rows that somebody else holds are left out, or it is `Held`."""
    key_lock: str
    """What ends a SELECT of keys that are to be inserted: it is `Held` if somebody is inserting one of them. Empty
    where `insert` finds out by itself."""

    @property
    def is_usable(self) -> bool:
        """False when the server is known to have closed it."""
        ...

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]: ...

    async def execute(self, sql: str, parameters: Sequence[Parameter]) -> int:
        """The number of rows that were matched."""
        ...

    async def insert(self, sql: str, parameters: Sequence[Parameter], *, wait_ms: int) -> None:
        """Insert rows. If somebody is inserting one of these keys, wait so long at most, or as shortly as the database
        can; then it is `Held`."""
        ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def check_server(self) -> None:
        """Raise `ConfigError` if the promises would not hold on this server."""
        ...

    def migration_lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Only one session at a time is inside. What it does is committed at the end, at the latest."""
        ...

    async def close(self) -> None: ...

    def terminate(self) -> None:
        """Close it at once, without a word to the server."""
        ...


class Driver(Protocol):
    """Makes sessions, and knows what the errors of its library mean."""

    place: str
    """For messages: which database, without any secret."""
    idle_seconds: float
    """How long an unused session is kept."""

    @property
    def dialect(self) -> Dialect: ...

    async def connect(self) -> Session: ...

    def translate(self, error: BaseException) -> MainspringError | Undone | None:
        """What a foreign error means; None for a defect, which passes unchanged."""
        ...
