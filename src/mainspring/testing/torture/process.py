"""A real server process: `python -m mainspring serve` on a data directory, with signals and an end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from mainspring import crashpoint
from mainspring.client import AsyncClient
from mainspring.testing.signals import mortal

TOKEN: Final = "torture-token-of-enough-length"  # noqa: S105
_READY: Final = re.compile(rb"is ready at (http://\S+)")
_POLL_SECONDS: Final = 0.01


class ServerProcess:
    """Started by the constructor. `ready` waits for the banner; every way to end it also reaps it.

    It is killed when whoever started it ends, however that ends.
    """

    def __init__(
        self, directory: Path, surroundings: Mapping[str, str] | None = None, /, *, crash_at: str = "", **settings: str
    ) -> None:
        """`settings` are those of `Config`, as text; the log is kept in `directory`.

        `surroundings` are more environment variables; `crash_at` names a crash point, with an optional `:count`.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        settings = {"data_dir": str(directory), "port": "0", "token": TOKEN} | settings
        environment |= {f"MAINSPRING_{name.upper()}": value for name, value in settings.items()}
        if crash_at:
            environment[crashpoint.VARIABLE] = crash_at
        environment |= surroundings or {}
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"server-{time.monotonic_ns()}.log"
        self.url = ""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                mortal([sys.executable, "-m", "mainspring", "serve"]), env=environment, stdout=log, stderr=log
            )

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    async def ready(self, *, seconds: float = 30.0) -> bool:
        """Wait for the server to accept requests. False if it ended instead."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := _READY.search(self.log.read_bytes()):
                self.url = found[1].decode()
                return True
            if self.exit_code is not None:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        raise TimeoutError(f"Expected the server to be ready within {seconds} s, got: {self.tail()}")

    def client(self, *, timeout: float = 10.0) -> AsyncClient:
        """A client that sends everything once, so that what it reports is what happened."""
        return AsyncClient(self.url, TOKEN, timeout=timeout, retries=0)

    def send(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            self._process.send_signal(number)

    async def ended(self, *, seconds: float = 30.0) -> int:
        """Wait for the end; returns the exit code."""
        deadline = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"Expected the server to end within {seconds} s, got: {self.tail()}")
            await asyncio.sleep(_POLL_SECONDS)
        return code

    async def stop(self, *, seconds: float = 30.0) -> int:
        self.send(signal.SIGTERM)
        return await self.ended(seconds=seconds)

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.ended()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


@asynccontextmanager
async def serving(directory: Path, *, crash_at: str = "", **settings: str) -> AsyncIterator[ServerProcess]:
    """A server that is ready; killed at the end of the block, if it still runs then."""
    server = ServerProcess(directory, crash_at=crash_at, **settings)
    try:
        if not await server.ready():
            raise RuntimeError(f"Expected a server, got exit code {server.exit_code}: {server.tail()}")
        yield server
    finally:
        await server.kill()
