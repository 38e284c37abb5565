"""Waiting, for event loops. Claims of long-running work are renewed by tasks that end with it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any

from mainspring.idempotency.terms import HELD, Busy, Circular, Flight, T


class _Line:
    __slots__ = ("callers", "flight", "holder", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.flight = Flight()
        self.holder: _Turn | None = None
        self.callers = 0


class _Turn:
    """One caller's place in the line for a key."""

    __slots__ = ("_address", "_line", "_lines", "_outer", "_seconds")

    def __init__(self, lines: dict[str, _Line], address: str, seconds: float) -> None:
        self._lines = lines
        self._address = address
        self._seconds = seconds

    async def __aenter__(self) -> Flight:
        line = self._line = self._lines.setdefault(self._address, _Line())
        line.callers += 1
        try:
            held = HELD.get()
            if line.holder in held:
                raise Circular
            if not line.lock.locked():
                await line.lock.acquire()  # at once
            else:
                async with asyncio.timeout(self._seconds):
                    await line.lock.acquire()
        except TimeoutError:
            self._leave()
            raise Busy(line.flight.running) from None
        except BaseException:
            self._leave()
            raise
        line.holder = self
        self._outer = held
        HELD.set((*held, self))
        return line.flight

    async def __aexit__(self, *_: object) -> None:
        HELD.set(self._outer)
        self._line.holder = None
        self._line.lock.release()
        self._leave()

    def _leave(self) -> None:
        """Whoever comes after a failure stands in another line."""
        line = self._line
        line.callers -= 1
        if (line.callers == 0 or line.flight.failure is not None) and self._lines.get(self._address) is line:
            del self._lines[self._address]
        if line.callers == 0:
            line.flight.failure = None  # its traceback leads back here


class _Beat:
    """Renews a claim every now and then, until it ends. A renewal that is under way is never cut short."""

    __slots__ = ("_every_seconds", "_handle", "_is_over", "_renew", "_renewal")

    def __init__(self, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        self._renew = renew
        self._every_seconds = every_seconds
        self._is_over = False
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._schedule()

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        self._handle.cancel()
        if self._renewal is not None:
            await _to_its_end(self._renewal)

    def _schedule(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._every_seconds, self._begin)

    def _begin(self) -> None:
        self._renewal = asyncio.create_task(self._beat(), name="mainspring-idempotency-renewal")

    async def _beat(self) -> None:
        if await self._renew() and not self._is_over:
            self._schedule()


async def _to_its_end(task: asyncio.Task[T]) -> T:
    """The result of a task. A caller that is cancelled meanwhile hears of it when the task has ended."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()


class LoopModel:
    """Waiting, for event loops."""

    is_waiting = True

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        """Simulations have time and chance of their own."""
        self.monotonic = monotonic
        self.entropy = entropy
        self.lines: dict[str, _Line] = {}
        self._trying: set[asyncio.Task[None]] = set()

    def turn(self, address: str, seconds: float) -> _Turn:
        return _Turn(self.lines, address, seconds)

    def beating(self, renew: Callable[[], Awaitable[bool]], every_seconds: float) -> _Beat:
        return _Beat(renew, every_seconds)

    def keep_trying(self, step: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        async def keep_trying() -> None:
            goes_on = True
            while goes_on:
                await asyncio.sleep(every_seconds)
                goes_on = await step()

        task = asyncio.create_task(keep_trying(), name="mainspring-idempotency-withdrawal")
        self._trying.add(task)
        task.add_done_callback(self._trying.discard)

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await _to_its_end(asyncio.create_task(coroutine, name="mainspring-idempotency-write"))

    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:
        result = work(*arguments)
        return await result if isawaitable(result) else result

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
