"""A listening socket for the application, as an `async with`: open on entry, drained and closed on exit.

uvicorn's protocol does the HTTP; its `Server` is not used, because it installs signal handlers and polls. The caller
chooses the event loop and handles signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from uvicorn.config import Config
from uvicorn.server import ServerState

from mainspring.api.answers import Cycle
from mainspring.api.app import AsgiApp
from mainspring.api.heads import Hosts
from mainspring.api.limits import Guard, Limits
from mainspring.api.protocol import GuardedProtocol
from mainspring.errors import ConfigError

CLOSE_SECONDS = 1.0
"""How long closed connections may take to disappear."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the application is served."""

    host: str
    port: int
    state: ServerState

    @property
    def connections(self) -> int:
        return len(self.state.connections)

    @property
    def requests(self) -> int:
        """Answered so far."""
        return self.state.total_requests


@asynccontextmanager
async def listening(
    app: AsgiApp,
    *,
    host: str,
    port: int,
    limits: Limits,
    hosts: Hosts = None,
    drain_seconds: float = 10.0,
    share_port: bool = False,
    cycle: type[Cycle] = Cycle,
) -> AsyncIterator[Listener]:
    """Serve until the block ends; then answer what has been asked, for at most `drain_seconds`.

    `hosts` are the names that may be asked for, if not all. With `share_port` other processes of the same user may
    listen there too; the system spreads connections over them. `cycle` is how answers leave: `AnyCycle`, if they may be
    in pieces.
    """
    config = Config(
        app,
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    state = ServerState()
    guard = Guard(limits, hosts, cycle)

    def connect() -> GuardedProtocol:
        return GuardedProtocol(guard=guard, config=config, server_state=state, app_state={})

    try:
        server = await asyncio.get_running_loop().create_server(
            connect, host=host, port=port, backlog=2048, reuse_port=share_port or None
        )
    except OSError as error:
        raise ConfigError(f"Expected an address to listen on, got {host}:{port}: {error.strerror or error}") from error
    sweeper = asyncio.create_task(guard.sweep(state.connections))
    try:
        yield Listener(host=host, port=server.sockets[0].getsockname()[1], state=state)
    finally:
        server.close()
        await _drain(state, drain_seconds)
        sweeper.cancel()
        with suppress(asyncio.CancelledError):  # but not an error that ended it early
            await sweeper
        async with asyncio.timeout(CLOSE_SECONDS):
            await server.wait_closed()


async def _drain(state: ServerState, drain_seconds: float) -> None:
    for connection in tuple(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(tuple(state.tasks), timeout=drain_seconds)
    late = tuple(state.tasks)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for _ in range(int(CLOSE_SECONDS / 0.01)):  # the last answers may still be on their way out
        if not state.connections:
            return
        await asyncio.sleep(0.01)
    for connection in tuple(state.connections):
        if isinstance(connection, GuardedProtocol):
            connection.transport.abort()
