"""Any ASGI application behind Mainspring's own listener, whose peers are bounded in all that they may take.

async with listening(app, port=8080) as listener:
    await stopped.wait()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from mainspring import descriptors
from mainspring.api import listener
from mainspring.api.head_checks import hosts_on
from mainspring.api.limits import Limits
from mainspring.api.listener import Listener
from mainspring.api.peers import RESERVE

__all__ = ["Limits", "Listener", "listening"]


@asynccontextmanager
async def listening(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits | None = None,
    allow_hosts: Iterable[str] = (),
    drain_seconds: float = 10.0,
) -> AsyncIterator[Listener]:
    """Serve an ASGI application until the block ends; then answer what has been asked, for at most `drain_seconds`.

    On loopback only its own names are answered to, and `allow_hosts`. No more connections are let in than half of the
    process's file descriptors. Lifespan and websockets are not served, and signals are left to the caller.
    """
    wanted = limits or Limits()
    available = max(1, descriptors.for_peers() - RESERVE)
    bounded = replace(wanted, connections=min(wanted.connections, available))
    async with listener.listening(
        app,
        host=host,
        port=port,
        limits=bounded,
        hosts=hosts_on(host, allow_hosts),
        drain_seconds=drain_seconds,
    ) as opened:
        yield opened
