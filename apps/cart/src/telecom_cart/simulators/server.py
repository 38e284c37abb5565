"""A simulator behind a port of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.errors import ConfigError
from mainspring.listening import Listener, listening
from telecom_cart.simulators import salesforce, shopify
from telecom_cart.simulators.controls import routes as controls
from telecom_cart.simulators.simulation import Simulation
from telecom_cart.sites import is_foreign

SIMULATIONS: dict[str, Callable[[], tuple[Simulation, list[Route]]]] = {
    "salesforce": salesforce.simulated,
    "shopify": shopify.simulated,
}


class PortTaken(Exception):
    """Nothing can be served there."""


@asynccontextmanager
async def serving(platform: str, *, port: int = 0) -> AsyncIterator[tuple[Simulation, str]]:
    """A simulator, and its address, until the block is left."""
    simulation, routes = SIMULATIONS[platform]()
    app = Starlette(routes=[*routes, *controls(simulation)])
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(listening(_OwnSite(app), port=port, drain_seconds=0))
        except ConfigError as error:
            raise PortTaken(f"Port {port} of 127.0.0.1 cannot be used: {error}") from None
        simulation.drop = lambda request: _drop(listener, request)
        yield simulation, f"http://127.0.0.1:{listener.port}"


class _OwnSite:
    """A page of another site may not steer it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = JSONResponse({"detail": "A page of another site may not change anything here"}, 403)
        await (refused if is_foreign(scope) else self._app)(scope, receive, send)


def _drop(listener: Listener, request: Request) -> None:
    if request.client is not None:
        listener.cut_off((request.client.host, request.client.port))
