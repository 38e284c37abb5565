"""Functions of this program as receivers: an exception is a failure, a dict is an answer, too slow is a timeout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Problem, Reply
from mainspring.errors import InvalidInput

HANDLER_SCHEME = "handler:"
D = TypeVar("D")


def awaited(function: Callable[[D], object]) -> Callable[[D], Awaitable[object]]:
    """A plain function runs in a thread, so that it holds up nobody. What it returns is awaited if it can be: what
    wraps a coroutine function looks like a plain one."""
    if not callable(function):
        raise InvalidInput(f"Expected a function, got {function!r:.100}")
    if inspect.iscoroutinefunction(function):
        return function

    async def call(due: D) -> object:
        returned = await asyncio.to_thread(function, due)
        return await returned if inspect.isawaitable(returned) else returned

    return call


async def call_handler(
    name: str, call: Callable[[], Awaitable[object]] | None, *, timeout_ms: int, clock: Clock
) -> Reply:
    """Run a registered function and say how it ended, as the sender does. `call` is None if none has that name."""
    begun = clock.monotonic()

    def reply(status: int | None, body: object, problem: Problem = "", detail: str = "", sent: bool = True) -> Reply:
        return Reply(
            status=status,
            headers={},
            body=b"" if body is None else msgspec.json.encode(body, enc_hook=repr),
            truncated=False,
            problem=problem,
            detail=detail,
            sent=sent,
            duration_ms=round((clock.monotonic() - begun) * 1000),
        )

    if call is None:
        return reply(None, None, "network", f"Handler {name!r} does not exist.", sent=False)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return reply(200, await call())
    except TimeoutError:
        return reply(None, None, "timeout", f"The handler {name!r} did not end in time.")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return reply(500, {"error": "The handler awaited something that was cancelled."})
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its outcome
        telemetry.logger.exception("a handler raised")
        return reply(500, {"error": f"{type(error).__name__}: {error}"})
