"""What a store has opened belongs to the process that opened it.

A forked child has copies of its parent's connections but none of the threads behind them: answers could reach either
process, SQLite would lose count of its locks, and a loop without its thread never answers. So a store that was in use
at a fork is refused in the child; closing it there does nothing.
"""

from __future__ import annotations

import os

from mainspring.errors import ConfigError


class Process:
    """The process in which a store is open, if it is."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid: int | None = None

    @property
    def is_another(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()

    def enter(self) -> None:
        if self.is_another:
            raise ConfigError(
                "Expected a store that this process may use, got one that was in use when it was forked: close it "
                "before the fork, or use it for the first time after"
            )
        self._pid = os.getpid()

    def leave(self) -> None:
        """Nothing is left open."""
        self._pid = None
