"""Routes for whoever runs the server: is it alive, can it work, what does it count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import msgspec

from mainspring.api.routes import Route
from mainspring.wire.message import View

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HealthView(View, frozen=True, kw_only=True):
    """The process is running."""

    status: Literal["ok"] = "ok"
    version: str


class ReadyView(View, frozen=True, kw_only=True):
    """The instance can do its work."""

    status: Literal["ready"] = "ready"
    instance: str


def status_routes(
    *,
    ready: Callable[[], Awaitable[None]],
    metrics: Callable[[], str],
    instance: str,
    version: str,
    join_metrics: Callable[[str], Awaitable[str]] | None = None,
) -> tuple[Route, ...]:
    """`join_metrics` adds those of the other processes that answer at the same address."""
    healthy = msgspec.json.encode(HealthView(version=version))
    useful = msgspec.json.encode(ReadyView(instance=instance))

    async def respond_health(_: bytes) -> bytes:
        return healthy

    async def respond_ready(_: bytes) -> bytes:
        await ready()
        return useful

    async def respond_metrics(_: bytes) -> bytes:
        text = metrics()
        return (text if join_metrics is None else await join_metrics(text)).encode()

    return (
        Route(
            "GET",
            "/health",
            "status",
            "Check whether the process is running",
            respond_health,
            answer=HealthView,
            is_open=True,
        ),
        Route(
            "GET",
            "/ready",
            "status",
            "Check whether the instance can do its work",
            respond_ready,
            answer=ReadyView,
            problems=("unauthenticated", "unavailable"),
        ),
        Route(
            "GET",
            "/metrics",
            "status",
            "Metrics for Prometheus",
            respond_metrics,
            content_type=METRICS_TYPE,
            problems=("unauthenticated",),
        ),
    )
