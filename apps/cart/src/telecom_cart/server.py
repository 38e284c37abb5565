"""The cart behind a port, until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mainspring import Mainspring
from mainspring.errors import NotFound
from mainspring.listening import Limits, listening
from telecom_cart.api.app import create_app
from telecom_cart.api.correlation import CorrelationFilter
from telecom_cart.closer import Closer
from telecom_cart.loglines import formatter
from telecom_cart.platforms import NotConfigured, PlatformChoice
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.settlement import Settlement
from telecom_cart.shop import Shop
from telecom_cart.shutdown import on_end
from telecom_cart.wakes import NAMESPACE, Wakes

LIMITS: Final = Limits(tokenless_connections=1024)
"""Nobody has a token here, and whoever stands in front of the cart has one address."""


@dataclass(frozen=True)
class ServerOptions:
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
async def settlement_on(store: str) -> AsyncIterator[Settlement]:
    """For what a person decides: the store alone, in which carts were served before. Nothing runs here."""
    path = _file_of(store)
    if path is not None and not path.exists():
        raise NotConfigured(f"There is no database {path}: --store says where the carts are.")
    ms = Mainspring(store)
    async with ms.at_rest():
        try:
            await anext(ms.timers.iterate(namespace=NAMESPACE), None)
        except NotFound:
            raise NotConfigured("No carts were ever served from this store: --store says where they are.") from None
        repository = Repository(ms)
        wakes = Wakes(ms, Settings())
        yield Settlement(repository=repository, closer=Closer(repository=repository, wakes=wakes), wakes=wakes)


def _file_of(store: str) -> Path | None:
    """The file of an embedded store."""
    return Path(store.removeprefix("sqlite:///").partition("?")[0]) if store.startswith("sqlite:///") else None


async def serve(serving: ServerOptions, *, ready: Callable[[str], None]) -> None:
    """Returns after SIGTERM or SIGINT, when requests under way are answered. `ready` is told the address."""
    platform = serving.platform
    ms = mainspring_on(serving.store, platform)
    provider = platform.provider(ms)
    try:
        shop = Shop(ms, provider, serving.settings)
        async with ms, shop:
            app = create_app(shop, simulator=platform.url if platform.is_simulated else None)
            async with listening(app, host=serving.host, port=serving.port, limits=LIMITS) as listener:
                ended = asyncio.Event()
                on_end(ended.set, with_stdin=serving.ends_with_stdin)
                # What exists now lives as long as the process: requests would wait while it is looked through again.
                gc.collect()
                gc.freeze()
                gc.set_threshold(20_000, 20, 50)
                host = f"[{serving.host}]" if ":" in serving.host else serving.host
                ready(f"http://{host}:{listener.port}")
                await ended.wait()
    finally:
        await provider.close()


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(CorrelationFilter())
    handler.setFormatter(formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("mainspring", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
