"""Functions of this program as receivers: an exception is a failure, a dict is an answer, too slow is a timeout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Problem, Reply
from mainspring.errors import InvalidInput
from mainspring.text import printable

HANDLER_SCHEME = "handler:"
LEAVE_SECONDS: Final = 1.0
"""How long a handler that was cancelled because of a stop may take to end."""
REASON_LENGTH: Final = 500
"""How much of what a function raised is told as the reason, in characters."""
D = TypeVar("D")


def awaited(function: Callable[[D], object]) -> Callable[[D], Awaitable[object]]:
    """A plain function runs in a thread, so that it holds up nobody. What it returns is awaited if it can be: what
    wraps a coroutine function looks like a plain one."""
    if not callable(function):
        raise InvalidInput(f"Expected a function, got {function!r:.100}")
    called = function if inspect.isroutine(function) or isinstance(function, partial) else type(function).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidInput(
            f"Expected a function that does its work when it is called, got a generator: {function!r:.100}"
        )
    if inspect.iscoroutinefunction(function):
        return function

    async def call(due: D) -> object:
        returned = await asyncio.to_thread(function, due)
        if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise InvalidInput(
                "Expected a function that does its work when it is called, got one that returns a generator"
            )
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
            body=_encoded(name, body),
            truncated=False,
            problem=problem,
            detail=detail,
            sent=sent,
            duration_ms=round((clock.monotonic() - begun) * 1000),
        )

    if call is None:
        return reply(None, None, "network", f"Handler {name!r} does not exist.", sent=False)
    work = asyncio.create_task(_run(call))
    in_time = await _over(name, work, timeout_ms=timeout_ms)
    try:
        returned = work.result()
        return reply(200, returned, detail=f"The handler {name!r} returned ok: false." if _refuses(returned) else "")
    except asyncio.CancelledError:
        if not in_time:
            return reply(None, None, "timeout", f"The handler {name!r} did not end in time.")
        words = "The handler awaited something that was cancelled."
        return reply(500, {"error": words}, detail=words)
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its outcome
        telemetry.exception("a handler raised", handler=name)
        words = _words(error)
        return reply(500, {"error": words}, detail=f"The handler {name!r} raised {words[:REASON_LENGTH]}")


async def _run(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


async def _over(name: str, work: asyncio.Task[object], *, timeout_ms: int) -> bool:
    """Wait until a handler has ended, and say whether its time sufficed; when that is over it is cancelled.

    Somebody who stops does not wait for it, except for a moment: it may go on in spite of that.
    """
    try:
        _, late = await asyncio.wait({work}, timeout=timeout_ms / 1000)
        if late:
            work.cancel()
            await asyncio.wait({work})
        return not late
    except asyncio.CancelledError:
        work.cancel()
        try:
            await asyncio.wait({work}, timeout=LEAVE_SECONDS)
        finally:
            if not work.done():
                telemetry.error("a handler goes on although it was cancelled: nobody waits for it", handler=name)
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def _encoded(name: str, body: object) -> bytes:
    """What a handler has returned. It has done its work: whatever that is, it is not run again because of it."""
    if body is None:
        return b""
    try:
        return msgspec.json.encode(body, enc_hook=repr)
    except Exception as error:  # noqa: BLE001 - see above
        reason = type(error).__name__
        telemetry.warning("what a handler returned cannot be written as JSON", handler=name, reason=reason)
        return b'{"ok":false}' if _refuses(body) else b""


def _refuses(returned: object) -> bool:
    return isinstance(returned, dict) and returned.get("ok") is False


def _words(error: Exception) -> str:
    try:
        return printable(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - it cannot even say what it is
        return type(error).__name__
