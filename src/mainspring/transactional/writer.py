"""`TimerWriter`: timers from programs that run no engine. It needs nothing but the caller's connection."""

from __future__ import annotations

import re
from typing import Any, Final, Unpack

from mainspring.config import Config, load_config
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.errors import ConfigError, InvalidInput
from mainspring.keywords import refuse_unknown
from mainspring.stores.sql.schema import Names
from mainspring.timers.arguments import TimerFields, create_request
from mainspring.timers.handlers import HANDLER_SCHEME
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.transactional.connections import BlockingConnection, Bridged, recognised
from mainspring.transactional.statements import Creation

_NAME: Final = re.compile(r"([a-z_][a-z0-9_]{0,39})?")


class TimerWriter:
    """Writes timers of one namespace, on any connection to the database that Mainspring uses. May be shared.

        reminders = TimerWriter(namespace="shop")
        with connection:
            connection.execute("INSERT INTO orders …")
            reminders.create(connection, "order-7", delay_seconds=3600, callback_url="https://…")

    `prefix` and `schema` are those of the store's URL. Settings are those of `Config`, read like the server's; what
    counts here is which targets are allowed and how large a payload may be. The namespace must exist.
    """

    def __init__(
        self, *, namespace: str = "default", prefix: str = "mainspring_", schema: str = "", **settings: Any
    ) -> None:
        refuse_unknown(settings, Config.__struct_fields__)
        config = load_config(settings)
        self.namespace = namespace
        guard = Guard(allow=config.allow_targets, allow_loopback=bool(config.allow_loopback))
        self._creation = Creation(
            tables=table_prefix(prefix=prefix, schema=schema),
            check_url=lambda url: _check_target(url, guard),
            max_payload=config.max_payload_bytes,
            secrets=Secrets(config.secret_names, redact_urls=config.redact_urls),
        )

    def create(self, connection: object, timer_id: str, **fields: Unpack[TimerFields]) -> TimerView:
        """Write a timer in the transaction of `connection`, or replace the one with this id."""
        return create_blocking(self._creation, connection, create_request(timer_id, namespace=self.namespace, **fields))

    async def acreate(self, connection: object, timer_id: str, **fields: Unpack[TimerFields]) -> TimerView:
        """`create` for connections that are awaited. One that is not holds up the event loop for its statements."""
        return await create_waiting(
            self._creation, connection, create_request(timer_id, namespace=self.namespace, **fields)
        )


def create_blocking(creation: Creation, connection: object, request: CreateTimer) -> TimerView:
    known = recognised(connection)
    if not isinstance(known, BlockingConnection):
        raise InvalidInput(f"Expected a synchronous connection, got {type(connection).__qualname__}: use acreate")
    return known.drive(creation.create(request, dialect=known.dialect, driver=known.driver))


async def create_waiting(creation: Creation, connection: object, request: CreateTimer) -> TimerView:
    known = recognised(connection)
    if isinstance(known, Bridged):
        view: TimerView = await known.run_sync(lambda blocking: create_blocking(creation, blocking, request))
        return view
    steps = creation.create(request, dialect=known.dialect, driver=known.driver)
    return known.drive(steps) if isinstance(known, BlockingConnection) else await known.drive(steps)


def table_prefix(*, prefix: str, schema: str) -> str:
    """What precedes the name of each table on a server."""
    for name, value in (("prefix", prefix), ("schema", schema)):
        if not _NAME.fullmatch(value):
            raise ConfigError(f"Expected {name} to be lower-case letters, digits and _, got {value!r}")
    return Names(prefix, schema).full("")


def _check_target(url: str, guard: Guard) -> None:
    """Handlers live in the program that runs the engine: here their names are taken on trust."""
    if url == HANDLER_SCHEME:
        raise InvalidInput("Expected the name of a handler, got none")
    if not url.startswith(HANDLER_SCHEME):
        guard.check_url(url)
