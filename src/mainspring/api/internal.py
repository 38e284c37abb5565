"""What processes of a cluster say to each other. Not part of the described API: it takes only the cluster's secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from mainspring.api.routes import Route
from mainspring.api.status import METRICS_TYPE
from mainspring.cluster.wakeups import PATH, Wake
from mainspring.fetches import pools
from mainspring.fetches.pools import CUT_OFF_PATH, CutOff, Execute, ExecuteReply
from mainspring.wire.strict_json import decode

METRICS_PATH: Final = "/internal/metrics"


def internal_routes(
    wake: Callable[[Wake], None], cut_off: Callable[[str], None], metrics: Callable[[], str]
) -> tuple[Route, ...]:
    async def respond_metrics(_: bytes) -> bytes:
        return metrics().encode()

    async def respond_wake(body: bytes) -> bytes:
        wake(decode(body, Wake))
        return b"{}"

    return (
        Route("POST", PATH, "internal", "Something has changed", respond_wake, is_internal=True),
        Route(
            "GET",
            METRICS_PATH,
            "internal",
            "The metrics of this process alone",
            respond_metrics,
            content_type=METRICS_TYPE,
            is_internal=True,
        ),
        _cut_off_route(cut_off),
    )


def executor_routes(
    execute: Callable[[Execute], Awaitable[ExecuteReply]], cut_off: Callable[[str], None]
) -> tuple[Route, ...]:
    async def respond_execute(body: bytes) -> bytes:
        return msgspec.json.encode(await execute(decode(body, Execute)))

    return (
        Route("POST", pools.PATH, "internal", "A call is to be made", respond_execute, is_internal=True),
        _cut_off_route(cut_off),
    )


def _cut_off_route(cut_off: Callable[[str], None]) -> Route:
    async def respond_cut_off(body: bytes) -> bytes:
        cut_off(decode(body, CutOff).mark)
        return b"{}"

    return Route("POST", CUT_OFF_PATH, "internal", "A fetch was cancelled", respond_cut_off, is_internal=True)
