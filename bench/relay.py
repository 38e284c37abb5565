"""A relay in front of a database that counts its clients' round trips and bytes. For counts, never for times.

Most protocols have one request at a time on a connection: there a round trip is data from the client that follows data
from the server, or opens the connection. Cassandra's carries many at once, so its requests are counted by their
frames.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, Protocol

READ_BYTES: Final = 256 * 1024
_FRAME_HEADER: Final = 9
_FRAME_REQUESTS: Final = (0x07, 0x0A, 0x0D)
"""QUERY, EXECUTE and BATCH; the others are set-up and heartbeats."""


class Counter(Protocol):
    """Sees the data of one connection."""

    count: int

    def asked(self, data: bytes) -> None: ...

    def answered(self) -> None: ...


class Turns:
    """Counts the times at which the client speaks up."""

    def __init__(self) -> None:
        self.count = 0
        self._asking = False

    def asked(self, data: bytes) -> None:
        self.count += not self._asking
        self._asking = True

    def answered(self) -> None:
        self._asking = False


class Frames:
    """Counts the requests in a stream of Cassandra's frames (protocol version 4)."""

    def __init__(self) -> None:
        self.count = 0
        self._rest = b""
        self._skip = 0

    def asked(self, data: bytes) -> None:
        data = self._rest + data
        place = self._skip
        while place + _FRAME_HEADER <= len(data):
            self.count += data[place + 4] in _FRAME_REQUESTS
            place += _FRAME_HEADER + int.from_bytes(data[place + 5 : place + _FRAME_HEADER], "big")
        self._rest = data[place:]
        self._skip = max(0, place - len(data))

    def answered(self) -> None: ...


class Relay:
    def __init__(self, port: int, counter: type[Turns] | type[Frames]) -> None:
        self.port = 0
        """Where it listens."""
        self.sent_bytes = 0
        """By the clients to the database."""
        self.received_bytes = 0
        self._target = port
        self._counter = counter
        self._connections: list[Counter] = []

    @property
    def round_trips(self) -> int:
        return sum(connection.count for connection in self._connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counter = self._counter()
        self._connections.append(counter)

        def asked(data: bytes) -> None:
            self.sent_bytes += len(data)
            counter.asked(data)

        def answered(data: bytes) -> None:
            self.received_bytes += len(data)
            counter.answered()

        with contextlib.suppress(OSError):  # one of the two has gone, and so does the other
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(_pump(reader, server_writer, asked))
                    pumps.create_task(_pump(server_reader, writer, answered))
            except* OSError:
                pass
            finally:
                server_writer.close()
        writer.close()


class _See(Protocol):
    def __call__(self, data: bytes, /) -> None: ...


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: _See) -> None:
    while data := await reader.read(READ_BYTES):
        see(data)
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def relay(port: int, *, frames: bool = False) -> AsyncIterator[Relay]:
    """Between the clients that connect to it and the server on `port` of this machine."""
    running = Relay(port, Frames if frames else Turns)
    listener = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = listener.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        listener.close()
