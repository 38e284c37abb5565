"""Where claims live. A store may serve threads and event loops, also both at once, in one program."""

from __future__ import annotations

from typing import Protocol

from mainspring.idempotency.claims import ClaimStore


class IdempotencyStore(Protocol):
    """What processors take. It connects when it is first used, and may be shared by any number of processors.

    Create it before a fork if you like; use it only after.
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
