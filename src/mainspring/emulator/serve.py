"""`mainspring dev serve`: a server in virtual time, on a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.api.asgi import AsgiApp
from mainspring.api.routes import Route
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.emulator.answers import TimedAnswers
from mainspring.emulator.emulation import Emulation
from mainspring.emulator.routes import clock_routes
from mainspring.processes.server import run


def serve_emulated(config: Config, emulation: Emulation) -> int:
    """Serve until told to stop. Returns the exit code."""

    @asynccontextmanager
    async def routes(instance: Instance) -> AsyncIterator[tuple[Route, ...]]:
        async with emulation.attached(instance) as passage:
            yield clock_routes(passage, emulation.clock)

    def timed(app: AsgiApp) -> AsgiApp:
        return TimedAnswers(app, emulation.clock)

    return run(config, surroundings=emulation.surroundings, routes=routes, around=timed)
