"""A relay in front of PostgreSQL that loses answers to COMMIT: the server has committed, and nobody is told.

It lets everything through until it is told to lose something. The connection ends with the answer, as it does when a
network goes away at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

READ_BYTES = 65_536
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The message of a client, as a simple query."""
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""The server's word that it is done."""


class CommitRelay:
    def __init__(self, target_port: int) -> None:
        self.port = 0
        """Where it listens."""
        self.commits = 0
        self.lost = 0
        """Answers that said "committed" and did not get through."""
        self.loses: Callable[[], bool] = lambda: False
        """Asked at each COMMIT whether its answer is to be lost."""
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()

    def lose_next(self) -> None:
        """Lose the answer to one COMMIT."""

        def once() -> bool:
            self.loses = lambda: False
            return True

        self.loses = once

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(server_writer)
            connection = _Connection(self)
            pumps = [
                asyncio.create_task(connection.ask(reader, server_writer)),
                asyncio.create_task(connection.answer(server_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)
        except asyncio.CancelledError:
            task.uncancel()  # by `close` alone
        finally:
            for each in writers:
                each.transport.abort()
            self._tasks.discard(task)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class _Connection:
    """The two directions of one connection. A client says COMMIT when it has heard everything before it."""

    def __init__(self, relay: CommitRelay) -> None:
        self._relay = relay
        self._is_losing = False

    async def ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        tail = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                tail += data
                if COMMIT in tail:
                    self._relay.commits += 1
                    self._is_losing = self._relay.loses()
                    tail = b""
                tail = tail[1 - len(COMMIT) :]
                server.write(data)
                await server.drain()

    async def answer(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        swallowed = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                if not self._is_losing:
                    client.write(data)
                    await client.drain()
                    continue
                swallowed += data
                if COMMITTED in swallowed:
                    self._relay.lost += 1
                    return  # which cuts both connections


@contextlib.asynccontextmanager
async def commit_relay(target_port: int) -> AsyncIterator[CommitRelay]:
    """Between its clients and the PostgreSQL on `target_port` of this machine."""
    relay = CommitRelay(target_port)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listener.close()
        await relay.close()
