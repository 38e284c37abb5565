"""The instance route: who is alive and owns how much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mainspring.api.routes import Route, operation
from mainspring.cluster.messages import InstancesView
from mainspring.wire.message import Message


class ListInstances(Message, frozen=True, kw_only=True):
    """All live instances that share the store."""


def instance_routes(instances: Callable[[], Awaitable[InstancesView]]) -> tuple[Route, ...]:
    async def list_instances(_: ListInstances) -> InstancesView:
        return await instances()

    return (
        operation(
            "/v1/instances/list",
            "List the instances of the cluster",
            list_instances,
            example=ListInstances(),
            answer=InstancesView,
        ),
    )
