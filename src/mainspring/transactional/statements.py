"""The statements of one create, apart from waiting: generators that yield statements and are sent their rows.

Whoever drives one may wait or not, so sync and async connections share this code. The shard range of a namespace
never changes, so it is read once; the database's clock comes with it, and is asked again after a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from secrets import randbits
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring.clock import ASK_TRIES, SLOW_SECONDS, Clock, SystemClock
from mainspring.delivery.secrets import Secrets
from mainspring.delivery.webhook import new_delivery_id
from mainspring.errors import NotFound
from mainspring.model import Detail, Namespace, Timer
from mainspring.store import first_version
from mainspring.timers import record
from mainspring.timers.checks import check
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.timers.views import view_of
from mainspring.transactional.dialects import SQLITE, Dialect, Statement

T = TypeVar("T")
Rows = Sequence[Sequence[object]]
Steps = Generator[Statement, Rows, T]

CLOCK_SECONDS = 60.0
"""How long the database's clock is extrapolated: drift stays far below what a timer promises."""


class _Known(Struct, frozen=True):
    namespace: Namespace
    asked_at: float


class Creation:
    """How timers come to be in one database. Knows no connection; may be shared by threads."""

    def __init__(
        self,
        *,
        tables: str,
        check_url: Callable[[str], object],
        max_payload: int,
        secrets: Secrets,
        accept: Callable[[Dialect, str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`tables` is the prefix of table names on a server; `accept` refuses databases and drivers, given by name.
        Without a `clock`, time is the database's."""
        self._tables = tables
        self._accept = accept
        self._check_url = check_url
        self._max_payload = max_payload
        self._secrets = secrets
        self._follows = clock is None
        self._clock: Clock = SystemClock() if clock is None else clock
        self._random = random.Random(randbits(128))
        self._known: dict[str, _Known] = {}

    def create(self, request: CreateTimer, *, dialect: Dialect, driver: str) -> Steps[TimerView]:
        """Refuses before it writes: an invalid request leaves the caller's transaction as it was."""
        if self._accept is not None:
            self._accept(dialect, driver)
        check(request, check_url=self._check_url, secrets=self._secrets)
        tables = "" if dialect is SQLITE else self._tables
        namespace = yield from self._find(request.namespace, dialect, tables)
        fresh = record.created(
            request,
            namespace,
            now=self._clock.now_ms(),
            version=first_version(self._random),
            delivery_id=new_delivery_id(self._random),
            max_payload=self._max_payload,
        )
        timer = yield from _put(fresh, dialect, tables)
        return view_of(timer, self._secrets)

    def _find(self, name: str, dialect: Dialect, tables: str) -> Steps[Namespace]:
        known = self._known.get(name)
        now = self._clock.monotonic()
        if known is not None and now - known.asked_at < CLOCK_SECONDS:
            return known.namespace
        for _ in range(ASK_TRIES):
            asked_at = self._clock.monotonic()
            rows = yield dialect.namespace(tables, name)
            if not rows:
                detail = f"Namespace {name!r} does not exist: create it before using it in a transaction"
                raise NotFound(detail)
            if not self._follows or self._clock.monotonic() - asked_at <= SLOW_SECONDS:
                break  # otherwise it tells an old time: see `clock.follow`, which waits as this must not
        value, database_ms = msgspec.convert(tuple(rows[0]), tuple[bytes, int])
        if self._follows:
            self._clock.align(database_ms)
        known = self._known[name] = _Known(msgspec.json.decode(value, type=Namespace), self._clock.monotonic())
        return known.namespace


def _put(fresh: Timer, dialect: Dialect, tables: str) -> Steps[Timer]:
    """See `dialects` for why it is done in this order."""
    rows = yield dialect.insert(tables, fresh)
    if not dialect.returning:
        rows = yield dialect.left(tables, fresh.key)
    generation, version, document = msgspec.convert(tuple(rows[0]), tuple[int, int, str])
    if generation == 1:
        return fresh
    detail = msgspec.json.decode(document, type=Detail)
    previous = replace(fresh, generation=generation - 1, detail=detail)
    timer = replace(record.recreated(fresh, previous), version=version)
    yield dialect.replace(tables, timer)
    return timer
