"""The cart behind a port, until it is told to end."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Final

import uvicorn

from mainspring import Mainspring
from mainspring.errors import NotFound
from telecom_cart.api.app import create_app
from telecom_cart.api.correlation import CorrelationFilter
from telecom_cart.closing import Closer
from telecom_cart.ending import on_end
from telecom_cart.platforms import NotConfigured, PlatformChoice
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.settling import Settling
from telecom_cart.shop import Shop
from telecom_cart.wakes import NAMESPACE, Wakes

DRAIN_SECONDS: Final = 10
_LINE: Final = "%(asctime)s %(levelname)-7s %(name)s [%(correlation_id)s] %(message)s"


@dataclass(frozen=True)
class Serving:
    store: str
    platform: PlatformChoice
    host: str = "127.0.0.1"
    port: int = 8710
    settings: Settings = field(default_factory=Settings)
    ends_with_stdin: bool = False


def mainspring_on(store: str, platform: PlatformChoice) -> Mainspring:
    """The folder of an embedded store is made."""
    if (path := _file_of(store)) is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotConfigured(f"The folder {path.parent} of the store cannot be made: {error.strerror}.") from None
    return Mainspring(store, allow_loopback=platform.is_local)


@asynccontextmanager
async def settling_on(store: str) -> AsyncIterator[Settling]:
    """For what a person decides: the store alone, in which carts were served before. Nothing runs here."""
    path = _file_of(store)
    if path is not None and not path.exists():
        raise NotConfigured(f"There is no database {path}: --store says where the carts are.")
    ms = Mainspring(store)
    async with ms.at_rest():
        try:
            await anext(ms.timers.list(NAMESPACE), None)
        except NotFound:
            raise NotConfigured("No carts were ever served from this store: --store says where they are.") from None
        repository = Repository(ms)
        wakes = Wakes(ms, Settings())
        yield Settling(repository=repository, closer=Closer(repository=repository, wakes=wakes), wakes=wakes)


def _file_of(store: str) -> Path | None:
    """The file of an embedded store."""
    return Path(store.removeprefix("sqlite:///").partition("?")[0]) if store.startswith("sqlite:///") else None


async def serve(serving: Serving, *, ready: Callable[[str], None]) -> None:
    """Returns after SIGTERM or SIGINT, when requests under way are answered. `ready` is told the address."""
    platform = serving.platform
    ms = mainspring_on(serving.store, platform)
    provider = platform.provider(ms)
    try:
        shop = Shop(ms, provider, serving.settings)
        async with ms, shop:
            config = uvicorn.Config(
                create_app(shop, simulator=platform.url if platform.is_simulated else None),
                host=serving.host,
                port=serving.port,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
            server = _Server(config, ready)
            on_end(server.end, with_stdin=serving.ends_with_stdin)
            # What exists now lives as long as the process: to look through it again is what requests would wait for.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 20, 50)
            await server.serve()
    finally:
        await provider.close()


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(CorrelationFilter())
    handler.setFormatter(logging.Formatter(_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("mainspring", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again, and end the process before its timers are put away."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def end(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
