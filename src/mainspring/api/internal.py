"""What instances of a cluster say to each other. Not part of the described API: it knows only the cluster's secret."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.api.routes import Route
from mainspring.decoding import decode
from mainspring.delivery.wakeups import PATH, Wake


def internal_routes(wake: Callable[[Wake], None]) -> tuple[Route, ...]:
    async def respond_wake(body: bytes) -> bytes:
        wake(decode(body, Wake))
        return b"{}"

    return (Route("POST", PATH, "internal", "Something has changed", respond_wake, is_internal=True),)
