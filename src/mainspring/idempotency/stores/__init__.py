"""Where claims live. A store may serve threads and event loops, also both at once, in one program."""

from __future__ import annotations

from typing import Protocol

from mainspring.errors import ConfigError
from mainspring.idempotency.claims import ClaimStore


class IdempotencyStore(Protocol):
    """What processors take. It connects when it is first used, and may be shared by any number of processors.

    Create it before a fork if you like, and use it only after: a child is refused what was in use when it was forked.
    """

    @property
    def database(self) -> str:
        """The kind of database, as the scheme of its URL."""
        ...

    @property
    def tables(self) -> str:
        """What stands before the names of tables, for SQL databases."""
        ...

    def blocking(self) -> ClaimStore:
        """For threads: its coroutines never suspend."""
        ...

    def waiting(self) -> ClaimStore:
        """For the running event loop."""
        ...

    def close(self) -> None:
        """Let go of what `blocking` has opened."""
        ...

    async def aclose(self) -> None:
        """Let go of what `waiting` has opened for this event loop, and of what `blocking` has."""
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
