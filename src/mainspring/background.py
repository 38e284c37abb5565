"""Work in the background of a process: what goes wrong with it is logged, and ends neither the work nor the process.

A row that somebody else wrote, a record that nobody can read, a database that fails in an unforeseen way: each may hit
a task that nobody waits for. In a group of tasks its error would end all of them, and so the instance, and the next
one, which finds the same row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

from mainspring import telemetry
from mainspring.errors import MainspringError, StoreUnavailable

T = TypeVar("T")

PAUSE_SECONDS: Final = 1.0
"""The shortest pause after something went wrong: what fails each time must not fill the log."""
STORE_RETRY_SECONDS: Final = 0.5


class guarded:  # noqa: N801 - used like a function
    """Log an error in this block, and go on after it. For our own errors, the message is enough."""

    __slots__ = ("_complaint", "_fields")

    def __init__(self, complaint: str, **fields: object) -> None:
        self._complaint = complaint
        self._fields = fields

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, MainspringError):
            telemetry.warning(self._complaint, reason=error.detail, **self._fields)
        elif isinstance(error, Exception):
            telemetry.exception(self._complaint, error, **self._fields)
        return isinstance(error, Exception)


async def repeat(work: Callable[[], Awaitable[None]], *, seconds: float, complaint: str) -> NoReturn:
    """Do it again and again, with pauses, whatever comes of it. Ends only by cancellation."""
    while True:
        pause = max(seconds, PAUSE_SECONDS)
        with guarded(complaint):
            await work()
            pause = seconds
        await asyncio.sleep(pause)


async def until_available(step: Callable[[], Awaitable[T]], *, complaint: str) -> T:
    """The result of a step, which is repeated until the store can be used."""
    while True:
        try:
            return await step()
        except StoreUnavailable as error:
            telemetry.warning(complaint, reason=error.detail)
            await asyncio.sleep(STORE_RETRY_SECONDS)


def start(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that does not end its group, whatever comes of it. Work that must go on after an error has to `repeat`."""
    task = tasks.create_task(_see_through(work))
    task.add_done_callback(lambda _: work.close())  # one that was cancelled before it began
    return task


async def _see_through(work: Coroutine[Any, Any, None]) -> None:
    with guarded("a task in the background ended with an error"):
        await work
