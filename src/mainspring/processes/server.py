"""The server: configuration to store to engine to services to HTTP, and an orderly way out.

A store that cannot be reached at the start is waited for, then given up with a clear message; one that is lost later
is waited for without end, and meanwhile requests are answered 503. SIGTERM and SIGINT stop the server: no new requests,
calls in flight end (bounded), shards are released, the store closes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import Protocol

import mainspring
from mainspring import telemetry
from mainspring.api.app import Api, Refuse, build_app, build_internal_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.head_checks import names_of
from mainspring.api.listener import listening
from mainspring.api.routes import Route
from mainspring.api.tokens import token_digest
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from mainspring.idempotency.stores.records import RecordsStore, TimedRecords
from mainspring.processes.neighbours import JoinMetrics
from mainspring.processes.startup import (
    abandon,
    advertised,
    hosts_of,
    limits_of,
    read_token,
    run_to_end,
    served,
    show_banner,
    spare_collector,
    started,
    within_descriptors,
)
from mainspring.wire.message import BATCH_ITEMS

STOP_SECONDS = 5.0
"""How much longer than the draining a stop may take."""
PRIVATE_CONNECTIONS = 64
"""For the other workers, of the descriptors that are kept: the public port may take all that peers are due."""
ITEM_BYTES = 1_024
"""By how much a timer in an answer may exceed three times the length of its request: `3e7` is written 30000000.0."""


MoreRoutes = Callable[[Instance], AbstractAsyncContextManager[tuple[Route, ...]]]
Around = Callable[[AsgiApp], AsgiApp]


class Role(Protocol):
    """How a server relates to whoever started it."""

    is_worker: bool
    """Whether it shares its port with others, and has a private one besides."""

    def watch(self, stop: asyncio.Event) -> None:
        """Set `stop` when there is a reason to stop other than a signal."""
        ...

    def joined_metrics(self, secret: str) -> AbstractAsyncContextManager[JoinMetrics | None]:
        """What adds the metrics of the others at the same port. `secret` is that of the cluster."""
        ...

    def ready(self, config: Config, port: int, private_port: int, token: str, source: str) -> None:
        """Requests are accepted at `port`, and those of other instances at `private_port` as well, if it is not 0."""
        ...


class Alone:
    """Started by a person or a service manager."""

    is_worker = False

    def watch(self, stop: asyncio.Event) -> None:
        """Signals are enough."""

    def joined_metrics(self, secret: str) -> AbstractAsyncContextManager[JoinMetrics | None]:
        return nullcontext()

    def ready(self, config: Config, port: int, private_port: int, token: str, source: str) -> None:
        show_banner(config, port, token, source)


def run(
    config: Config,
    role: Role | None = None,
    *,
    surroundings: Surroundings | None = None,
    routes: MoreRoutes = lambda _: nullcontext(()),
    around: Around = lambda app: app,
) -> int:
    """Serve until told to stop. Returns the exit code. `routes` are answered besides those of every server; `around` is
    put around the application."""
    config = served(config)
    return run_to_end(config, _serve(config, role or Alone(), surroundings, routes, around))


async def _serve(
    config: Config,
    role: Role,
    surroundings: Surroundings | None,
    routes: MoreRoutes,
    around: Around,
) -> None:
    config = within_descriptors(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    role.watch(stop)
    token, source = read_token(config)
    async with AsyncExitStack() as stack:
        instance = await started(lambda: Instance(config, surroundings=surroundings), config, stack, stop)
        if instance is None:
            return
        api = dataclasses.replace(
            api_of(config, instance, token, shared=role.is_worker),
            join_metrics=await stack.enter_async_context(role.joined_metrics(instance.cluster_secret)),
        )
        limits = limits_of(config)
        spare_collector()
        private_port = 0
        if role.is_worker:
            own = dataclasses.replace(api, wake=partial(instance.receive_wake, shared=False))
            few = dataclasses.replace(limits, connections=min(PRIVATE_CONNECTIONS, max(8, limits.connections // 4)))
            private = await stack.enter_async_context(
                listening(build_internal_app(own), host="127.0.0.1", port=0, limits=few, hosts=names_of(()))
            )
            private_port = private.port
        async with listening(
            around(build_app(api, await stack.enter_async_context(routes(instance)))),
            host=config.host,
            port=config.port,
            limits=limits,
            hosts=hosts_of(config),
            drain_seconds=config.drain_seconds,
            share_port=role.is_worker,
            access_log=config.access_log,
        ) as listener:
            local_address = f"http://127.0.0.1:{private_port}" if private_port else ""
            await instance.advertise(address=advertised(config, listener.port), local_address=local_address)
            role.ready(config, listener.port, private_port, token, source)
            await stop.wait()
            telemetry.info("stopping", calls_in_flight=instance.calls_in_flight)
            # First the listener drains, then the engine: both are bounded, and so is everything after them.
            loop.call_later(config.drain_seconds + config.longest_drain_seconds + STOP_SECONDS, abandon)
    telemetry.info("stopped")


def api_of(config: Config, instance: Instance, token: str, *, shared: bool) -> Api:
    """What an instance answers over HTTP. `shared`: other processes answer at the same address."""
    return Api(
        timers=instance.timers,
        jobs=instance.jobs,
        fetches=instance.fetches,
        keys=instance.keys,
        namespaces=instance.namespaces,
        delete_namespace=instance.delete_namespace,
        reshard_namespace=instance.reshard_namespace,
        shards=instance.shards,
        instances=instance.instances,
        ready=instance.ready,
        metrics=instance.metrics,
        token_digests=(token_digest(token),),
        instance=instance.ownership.instance,
        version=mainspring.__version__,
        max_body_bytes=config.max_body_bytes,
        wake=partial(instance.receive_wake, shared=shared),
        cut_off=instance.cut_off,
        cluster_digest=token_digest(instance.cluster_secret),
        idempotent=partial(keyed, config, instance.store),
    )


def keyed(config: Config, records: TimedRecords, app: AsgiApp, refuse: Refuse, /, *, safe_to_repeat: bool) -> AsgiApp:
    """The API with `Idempotency-Key`. A refusal changes nothing, so only what was done is kept.

    A create whose outcome is unknown is carried out again, which replaces the timer with an equal one. A run is not.
    """
    return IdempotencyMiddleware(
        app,
        store=RecordsStore(records),
        keep=lambda status: status < 300,
        safe_to_repeat=safe_to_repeat,
        max_request_bytes=config.max_body_bytes,
        max_response_bytes=3 * config.max_body_bytes + BATCH_ITEMS * ITEM_BYTES,
        max_kept_bytes=config.kept_answer_bytes,
        scope="api",
        refuse=refuse,
    )
