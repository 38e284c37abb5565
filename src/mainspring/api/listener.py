"""A listening socket for an application, as an `async with`: open on entry, drained and closed on exit.

The caller chooses the event loop and handles signals.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from mainspring.api.access_log import AccessLog
from mainspring.api.app import App
from mainspring.api.asgi import AsgiApp, Served
from mainspring.api.exchange import Application
from mainspring.api.head_checks import Hosts
from mainspring.api.limits import Limits, ListenerState
from mainspring.api.protocol import GuardedProtocol
from mainspring.errors import ConfigError

CLOSE_SECONDS = 1.0
"""How long closed connections may take to disappear."""
STRANGER_SECONDS = 1.0
"""How long a stop waits for a peer without a token that takes nothing of its answer."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the application is served."""

    host: str
    port: int
    state: ListenerState

    @property
    def connections(self) -> int:
        return len(self.state.connections)

    @property
    def requests(self) -> int:
        """Answered so far."""
        return self.state.answered

    def cut_off(self, client: tuple[str, int]) -> None:
        """Drop the connection of a peer, which gets no answer then. ASGI calls its address `client`."""
        for connection in tuple(self.state.connections):
            if connection.client == client:
                connection.dismiss()


@asynccontextmanager
async def listening(
    app: App | AsgiApp,
    *,
    host: str,
    port: int,
    limits: Limits,
    hosts: Hosts = None,
    drain_seconds: float = 10.0,
    share_port: bool = False,
    access_log: bool = False,
) -> AsyncIterator[Listener]:
    """Serve until the block ends; then answer what has been asked, for at most `drain_seconds`.

    `hosts` are the names that may be asked for, if not all. With `share_port` other processes of the same user may
    listen there too; the system spreads connections over them.
    """
    application: Application = app if isinstance(app, App) else Served(app)
    if access_log:
        application = AccessLog(application)
    guard = ListenerState(limits, hosts, access_log)

    def connect() -> GuardedProtocol:
        return GuardedProtocol(application, guard)

    try:
        server = await asyncio.get_running_loop().create_server(
            connect, host=host, port=port, backlog=2048, reuse_port=share_port or None
        )
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    sweeper = asyncio.create_task(guard.sweep())
    try:
        yield Listener(host=host, port=server.sockets[0].getsockname()[1], state=guard)
    finally:
        server.close()
        await _drain(guard, drain_seconds)
        sweeper.cancel()
        with suppress(asyncio.CancelledError):  # but not an error that ended it early
            await sweeper
        async with asyncio.timeout(CLOSE_SECONDS):
            await server.wait_closed()


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"Port {port} on {host} is already in use")
    return ConfigError(f"Expected an address to listen on, got {host}:{port}: {error.strerror or error}")


async def _drain(guard: ListenerState, drain_seconds: float) -> None:
    for connection in tuple(guard.connections):
        connection.shut_down()
    loop = asyncio.get_running_loop()
    hurried_at = -STRANGER_SECONDS
    with suppress(TimeoutError):
        async with asyncio.timeout(drain_seconds):
            while guard.tasks or any(connection.is_due_answers for connection in guard.connections):
                if loop.time() - hurried_at >= STRANGER_SECONDS:
                    hurried_at = loop.time()
                    for connection in tuple(guard.connections):
                        connection.hurry()
                await asyncio.sleep(0.01)
    late = tuple(guard.tasks)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=CLOSE_SECONDS)
    for _ in range(int(CLOSE_SECONDS / 0.01)):  # the last answers may still be on their way out
        if not guard.connections:
            return
        await asyncio.sleep(0.01)
    for connection in tuple(guard.connections):
        connection.dismiss()
