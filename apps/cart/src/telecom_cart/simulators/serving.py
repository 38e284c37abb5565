"""A simulator behind a port of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from telecom_cart.simulators import salesforce, shopify
from telecom_cart.simulators.controls import routes as controls
from telecom_cart.simulators.simulation import Simulation

SIMULATIONS: dict[str, Callable[[], tuple[Simulation, list[Route]]]] = {
    "salesforce": salesforce.simulated,
    "shopify": shopify.simulated,
}
STARTED_WITHIN_SECONDS = 10


class PortTaken(Exception):
    """Nothing can be served there."""


@asynccontextmanager
async def serving(platform: str, *, port: int = 0) -> AsyncIterator[tuple[Simulation, str]]:
    """A simulator, and its address, until the block is left."""
    simulation, routes = SIMULATIONS[platform]()
    app = Starlette(routes=[*routes, *controls(simulation)])
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        date_header=False,  # the simulation says its own time
    )
    try:
        bound = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortTaken(f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}.") from None
    server = _Quiet(config)
    simulation.drop = lambda request: _drop(server, request)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        async with asyncio.timeout(STARTED_WITHIN_SECONDS):
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.005)
        yield simulation, f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever started it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _drop(server: uvicorn.Server, request: Request) -> None:
    for connection in list(server.server_state.connections):
        if getattr(connection, "client", None) == (request.client and tuple(request.client)):
            connection.transport.abort()
