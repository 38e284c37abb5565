"""The statements of one create, apart from waiting: generators that yield statements and are sent their rows.

Whoever drives one may wait or not, so sync and async connections share this code. A namespace is read again after a
while, because it may get more shards or be deleted; the database's clock comes with it. What was read serves later
transactions, too, so it must be as new as it seems: see `dialects` on snapshots. On SQLite that is known once the
timer is written.
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
from mainspring.errors import Conflict, NotFound
from mainspring.model import Detail, Namespace, Timer
from mainspring.namespaces.cache import CACHE_SECONDS
from mainspring.store import first_version
from mainspring.timers import record
from mainspring.timers.checks import check
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.timers.views import view_of
from mainspring.transactional.dialects import SQLITE, Dialect, Statement

T = TypeVar("T")
Rows = Sequence[Sequence[object]]
Steps = Generator[Statement, Rows, T]


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
        known = yield from self._find(request.namespace, dialect, tables)
        namespace = known.namespace
        fresh = record.created(
            request,
            namespace,
            now=self._clock.now_ms(),
            version=first_version(self._random),
            delivery_id=new_delivery_id(self._random),
            max_payload=self._max_payload,
        )
        if namespace.earlier:
            fresh = yield from self._placed(fresh, namespace, dialect, tables)
        timer = yield from _put(fresh, dialect, tables)
        self._known[request.namespace] = known
        return view_of(timer, self._secrets)

    def _placed(self, fresh: Timer, namespace: Namespace, dialect: Dialect, tables: str) -> Steps[Timer]:
        """The timer where the one with its id is, or else where new ones go: see `namespaces.reshard`."""
        keys = namespace.keys_of(fresh.timer_id)
        present = {msgspec.convert(row[0], int) for row in (yield dialect.present(tables, keys))}
        key = next((one for one in keys if one.shard_id in present), None)
        if key is None or (key != keys[0] and not (yield dialect.lock(tables, key))):  # it may have ended since
            key = namespace.new_key_of(fresh.timer_id, self._clock.now_ms())
        return replace(fresh, shard_id=key.shard_id, uuid=key.uuid)

    def _find(self, name: str, dialect: Dialect, tables: str) -> Steps[_Known]:
        known = self._known.get(name)
        now = self._clock.monotonic()
        if known is not None and now - known.asked_at < CACHE_SECONDS:
            return known
        for _ in range(ASK_TRIES):
            asked_at = self._clock.monotonic()
            rows = yield dialect.namespace(tables, name)
            if not rows:
                raise _missing(name)
            if not self._follows or self._clock.monotonic() - asked_at <= SLOW_SECONDS:
                break  # otherwise it tells an old time: see `clock.follow`, which waits as this must not
        value, database_ms, trusted = msgspec.convert(tuple(rows[0]), tuple[bytes, int, int])
        if self._follows:
            self._clock.align(database_ms)
        if not trusted:
            rows = yield dialect.newest_namespace(tables, name)
            if not rows:
                raise _missing(name)
            value = msgspec.convert(rows[0][0], bytes)
        namespace = msgspec.json.decode(value, type=Namespace)
        if namespace.deletion is not None:
            self._known.pop(name, None)
            raise Conflict(f"Namespace {name!r} is being deleted")
        return _Known(namespace, asked_at)


def _missing(name: str) -> NotFound:
    return NotFound(f"Namespace {name!r} does not exist: create it before using it in a transaction")


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
