"""The open connections of a sender: idle ones for reuse, newest first, and one timer for all deadlines.

One timer serves every call and every idle connection, armed for the earliest deadline: a call that ends in time
costs no timer of its own. When it fires, the connections are looked through and those past their deadline expire.
Bounded: idle connections per origin and in all; busy ones are as many as there are calls.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from mainspring import descriptors
from mainspring.delivery.connection import READ_BYTES, Connection, Origin

IDLE_LIMIT: Final = 1024
_TICK_SECONDS: Final = 0.001
_CLOSE_SECONDS: Final = 5.0


class Pool:
    """Keeps connections; the `Keeper` of each of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, idle_seconds: float, max_idle_per_origin: int) -> None:
        self._max_idle = min(IDLE_LIMIT, descriptors.for_idle())
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._loop = loop
        self._idle_seconds = idle_seconds
        self._max_idle_per_origin = max_idle_per_origin
        self._idle: dict[Origin, list[Connection]] = {}
        self._idle_count = 0
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = inf
        self._closed = False
        self._empty = asyncio.Event()

    def take(self, origin: Origin, now: float) -> Connection | None:
        """An idle connection that can be trusted, no longer idle."""
        stack = self._idle.get(origin)
        while stack:
            connection = stack.pop()
            self._idle_count -= 1
            if connection.ready(now):
                return connection
            connection.abort()
        return None

    def adopt(self, connection: Connection) -> None:
        """Look after a new connection from now on.

        Not before the dialling is over: a connection whose dialling is cancelled belongs to the event loop, and
        uvloop closes it without telling its protocol.
        """
        if connection.open:
            self._open.add(connection)
        if self._closed:
            connection.abort()

    def close_idle(self) -> None:
        """Give back the descriptors of all connections that nobody uses."""
        for stack in tuple(self._idle.values()):
            for connection in tuple(stack):
                connection.abort()

    async def close(self) -> None:
        """Close every connection and wait until they are gone."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._open):
            connection.abort()
        if self._open:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._empty.wait()

    # What connections call.

    def watch(self, deadline: float) -> None:
        if deadline < self._wake_at and not self._closed:
            if self._timer is not None:
                self._timer.cancel()
            self._wake_at = deadline
            self._timer = self._loop.call_at(deadline, self._expire)

    def keep(self, connection: Connection, now: float) -> None:
        stack = self._idle.setdefault(connection.origin, [])
        if self._closed or len(stack) >= self._max_idle_per_origin or self._idle_count >= self._max_idle:
            connection.abort()
            return
        stack.append(connection)
        self._idle_count += 1
        connection.idle_since = now
        connection.deadline = deadline = now + self._idle_seconds
        if deadline < self._wake_at:
            self.watch(deadline)

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        stack = self._idle.get(connection.origin)
        if stack is not None:
            if connection in stack:
                stack.remove(connection)
                self._idle_count -= 1
            if not stack:
                del self._idle[connection.origin]
        if not self._open:
            self._empty.set()

    def _expire(self) -> None:
        now = self._loop.time()
        earliest = inf
        for connection in tuple(self._open):
            if connection.deadline <= now:
                connection.expire()
            elif connection.deadline < earliest:
                earliest = connection.deadline
        self._timer = None
        self._wake_at = inf
        if earliest < inf:
            self.watch(max(earliest, now + _TICK_SECONDS))
