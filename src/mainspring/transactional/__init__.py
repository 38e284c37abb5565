"""Timers that are written in the caller's own transaction: they commit with its data, or neither does.

    connections   which connection it is, and how a statement runs on it: the one place that knows drivers
    dialects      how PostgreSQL, MySQL and SQLite say it
    statements    those of one create, apart from waiting
    writer        `TimerWriter`, for programs that run no engine

A program that runs no engine uses `TimerWriter`; one that does passes `connection=` to `Mainspring.timers.create`.
Nothing here opens, commits, rolls back or closes anything, and nothing retries: the transaction is the caller's, and
so are its errors, which pass unchanged. Owners of shards see a committed row at their next look.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.timers.arguments import TimerFields
    from mainspring.transactional.writer import TimerWriter

__all__ = ["TimerFields", "TimerWriter"]

_MODULE_OF: Final = {"TimerFields": "mainspring.timers.arguments", "TimerWriter": f"{__name__}.writer"}


def __getattr__(name: str) -> object:
    # Loaded when used: idempotency needs the connections, and nothing of an instance.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found
