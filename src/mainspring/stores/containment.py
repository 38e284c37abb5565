"""What leaves a store: errors that the contract names, and no other (`contained`); and cancellations (`cancellable`).

Anything else that is raised, by a driver, a codec or a row that somebody else has written, becomes `StoreUnavailable`:
the engine waits and asks again instead of coming to an end.

A driver may lose a cancellation: `asyncio.wait_for` of Python 3.11 does, if what it waits for is done in that round.
A loop that was told to end would then go on for ever, and so would whoever waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar

from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.store import RecordStore, TimerStore

S = TypeVar("S")
Verb = Callable[..., Awaitable[Any]]

_VERBS: Final = [name for contract in (TimerStore, RecordStore) for name in vars(contract) if not name.startswith("_")]


def contained(store: type[S]) -> type[S]:
    """A class of stores with all of its verbs wrapped, so that no other errors leave them."""
    return _wrapped(store, _contained)


def cancellable(store: type[S]) -> type[S]:
    """The same, so that no cancellation is lost in them. Not for drivers that cancel their caller for good."""
    return _wrapped(store, _cancellable)


def _wrapped(store: type[S], wrap: Callable[[Verb], Verb]) -> type[S]:
    for name in _VERBS:
        setattr(store, name, wrap(getattr(store, name)))
    return store


def _contained(verb: Verb) -> Verb:
    @wraps(verb)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await verb(*args, **kwargs)
        except MainspringError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StoreUnavailable(f"Expected the store to do {verb.__name__}, got: {reason}") from error

    return call


def _cancellable(verb: Verb) -> Verb:
    @wraps(verb)
    async def call(*args: Any, **kwargs: Any) -> Any:
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        try:
            return await verb(*args, **kwargs)
        finally:
            if task is not None and task.cancelling() > cancelled:
                raise asyncio.CancelledError

    return call
