"""Where claims are kept. A store may serve threads and event loops, even both at once in one program.

memory       in this process only
records      in a database that Mainspring has a record store for; the stores that programs name are here
loop_stores  such a store for each event loop, opened from a URL; one of these loops is for threads
sqlite       a SQLite file, for threads
redis        Redis and Valkey
process      what was opened belongs to the process that opened it
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from mainspring.errors import ConfigError
from mainspring.idempotency.claims import ClaimStore


class IdempotencyStore(Protocol):
    """What processors take. It connects when it is first used, and may be shared by any number of processors.

    You may create it before a fork, but use it only afterwards: a store in use at the fork is refused in the child.
    """

    @property
    def database(self) -> str:
        """The kind of database, as the scheme of its URL."""
        ...

    @property
    def tables(self) -> str:
        """What precedes the names of tables, for SQL databases."""
        ...

    def blocking(self) -> ClaimStore:
        """For threads: its coroutines never suspend."""
        ...

    def waiting(self) -> ClaimStore:
        """For the running event loop."""
        ...

    def close(self) -> None:
        """Close what `blocking` has opened."""
        ...

    async def aclose(self) -> None:
        """Close what `waiting` has opened for this event loop, and what `blocking` has opened."""
        ...


@runtime_checkable
class LendsFile(Protocol):
    """What a store of a SQLite file offers in addition."""

    def lend_file(self, driver: str) -> None:
        """From now on the file is used by another SQLite library in this process, and not by this store: the two would
        not see each other's locks, and would overwrite each other's commits. Refused while anybody here has it open.
        """
        ...


def checked_store(store: object) -> IdempotencyStore:
    """Refuses what people try first: a URL, a path, a class, a client of a database."""
    verbs = ("blocking", "waiting", "close", "aclose")
    if isinstance(store, type) or not all(callable(getattr(store, verb, None)) for verb in verbs):
        what = store.__qualname__ if isinstance(store, type) else type(store).__qualname__
        raise ConfigError(
            "Expected a store, such as InMemoryStore(), SQLiteStore(path), PostgresStore(dsn) or RedisStore(url), got "
            + (f"the class {what}" if isinstance(store, type) else f"a value of the type {what}")
        )
    return store  # type: ignore[return-value]
