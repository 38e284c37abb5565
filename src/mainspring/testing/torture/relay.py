"""Stands between one instance and its database: lets everything through until told to cut or hold the line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

READ_BYTES: Final = 65_536


class Relay:
    """`cut` ends what is open and lets nobody in; `hold` lets nothing through; `heal` ends both."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        """Where it listens."""
        self._target_port = target_port
        self._is_cut = False
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._is_cut = True
        for task in tuple(self._tasks):
            task.cancel()

    def hold(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        try:
            if self._is_cut:
                return
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(server_writer)
            pumps = [
                asyncio.create_task(self._pump(reader, server_writer)),
                asyncio.create_task(self._pump(server_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)
        except OSError:
            return  # the database is away
        except asyncio.CancelledError:
            task.uncancel()  # only `cut` and `close` cancel
        finally:
            for each in writers:
                each.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        self.cut()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


@contextlib.asynccontextmanager
async def relay_to(target_port: int) -> AsyncIterator[Relay]:
    """To a server on this machine."""
    relay = Relay(target_port)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listener.close()
        await relay.close()
