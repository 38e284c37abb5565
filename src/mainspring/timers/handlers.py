"""Functions of this program as receivers: an exception is a failure, a dict is an answer, too slow is a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Problem, Reply
from mainspring.text import printable

HANDLER_SCHEME = "handler:"


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
    timeout = asyncio.timeout(timeout_ms / 1000)
    try:
        async with timeout:
            returned = await call()
        return reply(200, returned)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return reply(500, {"error": "The handler awaited something that was cancelled."})
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its outcome
        if timeout.expired() and isinstance(error, TimeoutError):  # not one of its own
            return reply(None, None, "timeout", f"The handler {name!r} did not end in time.")
        telemetry.logger.exception("a handler raised")
        return reply(500, {"error": _words(error)})


def _encoded(name: str, body: object) -> bytes:
    """What a handler has returned. It has done its work: whatever that is, it is not run again because of it."""
    if body is None:
        return b""
    try:
        return msgspec.json.encode(body, enc_hook=repr)
    except Exception as error:  # noqa: BLE001 - see above
        reason = type(error).__name__
        telemetry.warning("what a handler returned cannot be written as JSON", handler=name, reason=reason)
        is_refusal = isinstance(body, dict) and body.get("ok") is False
        return b'{"ok":false}' if is_refusal else b""


def _words(error: Exception) -> str:
    try:
        return printable(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - it cannot even say what it is
        return type(error).__name__
