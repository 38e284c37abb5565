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
"""How long a statement may wait for a lock."""
IDLE_SECONDS = 2
"""How long an open transaction waits for its next statement before the server ends it: well below the lease, so that
an owner that froze inside of a transaction cannot hold up its successor; and shorter than who waits for its locks."""


class Overtaken(Exception):
    """Somebody else inserted a row that was not there when this transaction looked.

    Nothing of the transaction was written: roll back and look again. The database says so by a duplicate key, or by
    a deadlock, if that row is locked by somebody who waits for a row of ours.
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

    def delete(self, table: str) -> str:
        """The beginning of a DELETE by primary key, up to its WHERE."""
        ...

    def text(self, column: str) -> str:
        """An expression that reads a name column as text."""
        ...

    def create_table(self, table: Table, full_name: str) -> list[str]: ...


class Session(Protocol):
    """One connection. After an error it is not used again."""

    share_lock: str
    """What ends a SELECT that keeps others from changing its rows."""

    @property
    def is_usable(self) -> bool:
        """False when the server is known to have closed it."""
        ...

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]: ...

    async def execute(self, sql: str, parameters: Sequence[Parameter]) -> int:
        """The number of rows that were matched."""
        ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

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

    def translate(self, error: BaseException) -> MainspringError | Overtaken | None:
        """What a foreign error means; None for a defect, which passes unchanged."""
        ...
