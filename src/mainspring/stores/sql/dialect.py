"""Where the databases differ. `Dialect` renders SQL, `Session` speaks to one connection, `Driver` makes sessions.

Statements are written with `?` for every value; nothing else in them is a question mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from mainspring.errors import MainspringError
from mainspring.store import Position
from mainspring.stores.plan import Value
from mainspring.stores.sql.rows import Row

Parameter = Value | list[Value]
"""PostgreSQL takes whole columns as arrays."""

LOCK_SECONDS = 3
"""How long a statement may wait for a lock. In practice only claims do: other statements skip rows that are held."""
IDLE_SECONDS = 2
"""How long an open transaction waits for its next statement before the server ends it: well below the lease, so that
an owner that froze inside a transaction cannot hold up its successor, and shorter than others wait for its locks."""


class Undone(Exception):
    """Nothing in the transaction was written, because of one of its rows. The session is as good as before."""


class Overtaken(Undone):
    """Somebody else inserted a row that was not there when this transaction looked: look again.

    The database says so by a duplicate key, or by a deadlock, if that row is locked by somebody who waits for a row
    of ours.
    """


class Held(Undone):
    """Somebody's open transaction holds a row, or the key of one that is to be inserted."""


class Unfit(Undone):
    """A value that the database cannot hold: too large, too long, or not text at all."""


class Denied(Undone):
    """The database refuses it for a reason that we do not know, such as somebody else's trigger or constraint.

    It may lie in one row. That row is unavailable: nobody knows when the database will accept it.
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
    """Follows a table name: use the primary key, whatever the statistics say."""
    skip_same_attempt: str
    """Follows an INSERT into the history: what is there already is not an error."""
    current_schema: str
    """An expression: where tables without a qualified name are."""

    def render(self, sql: str) -> str:
        """Turn `?` into the placeholders of the driver."""
        ...

    def keys(self, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        """A condition that holds for the rows with these keys."""
        ...

    def values(self, columns: Sequence[str], rows: Sequence[Row]) -> Statement:
        """What follows `INSERT INTO table (columns)`."""
        ...

    def for_each(self, query: str, numbers: Sequence[int]) -> Statement:
        """The one value that `query` finds for each number, which replaces its `{}`; all of them in this order."""
        ...

    def for_places(self, query: str, places: Sequence[tuple[int, Position]], values: Sequence[Value]) -> Statement:
        """All rows that `query` finds for these places. Shard, instant, instant again and uuid of each replace its four
        `{}`, which come before the `?` of the values."""
        ...

    def delete(self, table: str, columns: Sequence[str], keys: Sequence[Row]) -> Statement:
        """Remove the rows with these primary keys without looking at any other row: somebody may hold it."""
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
    """What ends a SELECT whose rows are to be changed; rows held by others are left out, or it raises `Held`."""
    key_lock: str
    """What ends a SELECT of keys that are to be inserted: it raises `Held` if somebody is inserting one of them. Empty
    if `insert` finds out by itself."""

    @property
    def is_usable(self) -> bool:
        """False when the server is known to have closed it."""
        ...

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]: ...

    async def execute(self, sql: str, parameters: Sequence[Parameter]) -> int:
        """The number of rows that were matched."""
        ...

    async def insert(self, sql: str, parameters: Sequence[Parameter], *, wait_ms: int) -> None:
        """Insert rows. If somebody is inserting one of these keys, wait at most this long, or as briefly as the
        database can; then raise `Held`."""
        ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def check_server(self) -> None:
        """Raise `ConfigError` if the promises would not hold on this server."""
        ...

    def migration_lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Only one session at a time is inside. What it does is committed by the end at the latest."""
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
