"""Namespaces: a record each, kept in memory because every create and every callback needs one.

The shard range of a namespace is taken from one counter, above all existing ranges, so ranges never overlap, and no
shard is given out twice.
The rows of jobs and fetches live in *system* namespaces, made at their first use and kept apart from those of users:
no request reaches them by name, and no user's namespace may be called like one.
Changes made by others, and those of this instance whose answer was lost, are seen at the next `refresh`, which the
keeper asks for at each renewal. Nobody adds a timer by what was read more than `CACHE_SECONDS` ago: so a change that is
that old is known to everybody who adds one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.signatures import check_secret, new_secret
from mainspring.errors import Conflict, FieldError, InvalidInput, NotFound, StoreUnavailable, wrong_field
from mainspring.model import Namespace, Record, salt_of, to_json
from mainspring.namespaces.cache import CACHE_SECONDS, MARGIN_MS, reread
from mainspring.namespaces.messages import (
    CreateNamespace,
    ListNamespaces,
    NamespacePage,
    NamespaceRef,
    NamespaceView,
    UpdateNamespace,
)
from mainspring.namespaces.views import namespace_view
from mainspring.store import RecordStore, all_records, ends_scan, first_version
from mainspring.unreadable import read_record
from mainspring.wire import cursors
from mainspring.wire.checks import check_change

NAMESPACES = "namespace"
SYSTEM = "system-namespace"
SYSTEM_PREFIX = "mainspring."
SEQUENCES = "sequence"
SHARDS = "shards"
DEFAULT = "default"
SECRETS_KEPT = 2


class Changed(Conflict):
    """Somebody else has written the record of a namespace since it was read."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Namespace {name!r} was changed in the meantime: try again")


class NamespaceService:
    def __init__(
        self,
        *,
        records: RecordStore,
        clock: Clock,
        randomness: random.Random,
        created: Callable[[], None],
        shard_limit: int = 16_384,
        system_shards: int = 16,
    ) -> None:
        """`created` is called when there are new shards for somebody to own. `shard_limit` bounds the shards of all
        namespaces together: every one of them is claimed at each start, and looked at again and again. `system_shards`
        is how many the first system namespace gets; the others get as many as that."""
        self._records = records
        self._created = created
        self._shard_limit = shard_limit
        self._system_shards = system_shards
        self._clock = clock
        self._random = randomness
        self._known: dict[str, Namespace] = {}
        self._system: dict[str, Namespace] = {}
        self._unread = 0
        self._fresh_until = -inf
        """By the monotonic clock: how long timers are added by what is known."""
        self._refreshing = asyncio.Lock()
        self._creating = asyncio.Lock()
        """One at a time checks whether there is room and takes it; with several instances, each may go over by one."""

    async def open(self) -> None:
        """Load what exists and make sure that `default` does."""
        await self.refresh()
        self._compare_setting()
        if DEFAULT not in self._known:
            try:
                await self.create(CreateNamespace(name=DEFAULT))
            except Conflict:
                await self.refresh()  # another instance may have started at the same moment
                if DEFAULT not in self._known:
                    raise

    def _compare_setting(self) -> None:
        present = self._present_system_shards
        if present != self._system_shards:
            telemetry.warning(
                "system_shards is for new clusters: this one keeps what it was made with",
                setting=self._system_shards,
                present=present,
            )

    @property
    def _present_system_shards(self) -> int:
        """All system namespaces have as many shards as the oldest of them, whatever instances are configured with."""
        oldest = min(self._system.values(), key=lambda namespace: namespace.first_shard, default=None)
        return self._system_shards if oldest is None else oldest.shard_count

    async def refresh(self) -> None:
        began = self._clock.monotonic()
        before = dict(self._known)
        found, unread = await self._scan(NAMESPACES)
        self._known = reread(found, before=before, known=self._known)
        before = dict(self._system)
        found, unread_of_system = await self._scan(SYSTEM)
        self._system = reread(found, before=before, known=self._system)
        self._unread = unread + unread_of_system
        self._fresh_until = max(self._fresh_until, began + CACHE_SECONDS)

    async def _scan(self, collection: str) -> tuple[dict[str, Namespace], int]:
        """The namespaces that can be read, and how many cannot."""
        found: dict[str, Namespace] = {}
        unread = 0
        async for record in all_records(self._records, collection, self._clock.now_ms):
            if (namespace := read_record(collection, record, _read)) is not None:
                found[record.key] = namespace
            else:
                unread += 1
        return found, unread

    async def shard_ids(self) -> Sequence[int]:
        """The shards that somebody should own, as the store has them now. Nobody calls what is being deleted."""
        await self.refresh()
        return [shard_id for namespace in self.known if namespace.deletion is None for shard_id in namespace.shards]

    @property
    def known(self) -> Sequence[Namespace]:
        """All namespaces, including those of the system."""
        return [*self._known.values(), *self._system.values()]

    async def system(self, name: str) -> Namespace:
        """The namespace of a service's own rows, made when it is first asked for."""
        namespace = self._system.get(name)
        if namespace is not None:
            return namespace
        now = self._clock.now_ms()
        record = await self._records.get_record(SYSTEM, name, now=now)
        if record is None:
            taken = await self._take_shards(lambda: self._present_system_shards)
            made = Namespace(
                name=name,
                first_shard=taken.start,
                shard_count=len(taken),
                created_at=now,
                updated_at=now,
                secrets=(),
            )
            record = await self._records.put_record(SYSTEM, name, to_json(made), expect=0, now=now)
            if record is None:
                return await self.system(name)  # another instance was first
        namespace = self._system[name] = _readable(SYSTEM, record)
        self._created()
        return namespace

    def cached(self, name: str) -> Namespace | None:
        return self._known.get(name)

    async def find(self, name: str) -> Namespace:
        """The namespace, from memory when it is known."""
        namespace = self._known.get(name)
        return namespace if namespace is not None else (await self.load(name))[0]

    def fresh(self, name: str) -> Namespace | None:
        """The namespace as it was a short while ago at most, if it is known without asking the store."""
        return self._known.get(name) if self._clock.monotonic() < self._fresh_until else None

    def open_to_timers(self, name: str) -> Namespace | None:
        """The namespace, if it is certain without asking the store that it takes new timers."""
        namespace = self.fresh(name)
        return None if namespace is None or namespace.deletion is not None else namespace

    async def find_current(self, name: str) -> Namespace:
        """The namespace as it was a short while ago at most, so that a timer is looked for wherever it may be."""
        if self._clock.monotonic() >= self._fresh_until:
            async with self._refreshing:
                if self._clock.monotonic() >= self._fresh_until:
                    await self.refresh()
        namespace = await self.find(name)
        if namespace.deletion is not None:
            namespace, _ = await self.load(name)  # there may be another of its name by now
        return namespace

    async def find_open(self, name: str) -> Namespace:
        """The namespace, to add a timer to it. Raises `Conflict` if it is being deleted."""
        namespace = await self.find_current(name)
        if namespace.deletion is not None:
            raise Conflict(f"Namespace {name!r} is being deleted")
        return namespace

    async def check_added(self, namespace: Namespace) -> None:
        """Whether a timer that has just been written, by what was known of the namespace before, is sure to be seen by
        whoever deletes it: the write may have taken so long that the deletion has passed its shard. Raises
        `StoreUnavailable` if that is not known, and `NotFound` if the namespace is gone."""
        known = self.open_to_timers(namespace.name) or await self.find_current(namespace.name)
        closed_at = None if known.deletion is None else known.deletion.closed_at
        is_late = closed_at is not None and self._clock.now_ms() >= closed_at - MARGIN_MS
        if is_late or known.created_at != namespace.created_at:
            raise StoreUnavailable(
                f"Namespace {namespace.name!r} was being deleted when the timer was written, and may have lost it"
            )

    async def load(self, name: str) -> tuple[Namespace, int]:
        """The namespace as the store has it, and the version of its record."""
        record = await self._records.get_record(NAMESPACES, name, now=self._clock.now_ms())
        if record is None:
            raise NotFound(f"Namespace {name!r} does not exist")
        namespace = _readable(NAMESPACES, record)
        self._known[name] = namespace
        return namespace, record.version

    async def rewrite(self, before: Namespace, after: Namespace, *, version: int) -> tuple[Namespace, int]:
        """Replace a namespace whose record has this version, if there is anything to change. Returns it with the
        version it has then. Raises `Changed` if somebody else has written it."""
        if after == before:
            return before, version
        record = await self._records.put_record(
            NAMESPACES, after.name, to_json(after), expect=version, now=self._clock.now_ms()
        )
        if record is None:
            raise Changed(after.name)
        self._known[after.name] = after
        self._created()
        return after, record.version

    async def remove(self, name: str, *, version: int) -> None:
        """Remove the record of a namespace whose shards are empty. Its shards are not given to anybody else: the
        counter has passed them. Raises `Changed` if somebody else has written it."""
        if not await self._records.delete_record(NAMESPACES, name, expect=version, now=self._clock.now_ms()):
            raise Changed(name)
        self._known.pop(name, None)

    async def create(self, request: CreateNamespace) -> NamespaceView:
        if request.secret is not UNSET:
            _check_secret(request.secret)
        if request.name.startswith(SYSTEM_PREFIX):
            detail = f"Expected a name that does not begin with {SYSTEM_PREFIX!r}, got {request.name!r}"
            raise wrong_field("/name", detail)
        async with self._creating:
            return await self._create(request)

    async def _create(self, request: CreateNamespace) -> NamespaceView:
        now = self._clock.now_ms()
        if await self._records.get_record(NAMESPACES, request.name, now=now) is not None:
            raise Conflict(f"Namespace {request.name!r} already exists")
        await self.check_room(request.shard_count)
        taken = await self._take_shards(lambda: request.shard_count)
        namespace = Namespace(
            name=request.name,
            first_shard=taken.start,
            shard_count=request.shard_count,
            # Other uuids than those of a deleted one of this name, of which calls may still be in flight.
            salt="" if request.name == DEFAULT else salt_of(taken),
            created_at=now,
            updated_at=now,
            secrets=(new_secret(self._random.randbytes(32)) if request.secret is UNSET else request.secret,),
            retry_policy=request.retry_policy,
            host_limit=request.host_limit,
            history_retention_days=request.history_retention_days,
            grouped=True,
        )
        value, first = to_json(namespace), first_version(self._random)
        if await self._records.put_record(NAMESPACES, request.name, value, expect=0, now=now, first=first) is None:
            raise Conflict(f"Namespace {request.name!r} already exists")
        self._known[request.name] = namespace
        self._created()
        return namespace_view(namespace)

    @asynccontextmanager
    async def more_shards(self, name: str, count: int, *, version: int) -> AsyncIterator[range]:
        """So many shard ids for a namespace whose record has this version; until the end of the block, nobody else
        here takes any. Raises `Conflict` if that is too many in all."""
        async with self._creating:
            if (await self.load(name))[1] != version:
                raise Changed(name)
            await self.check_room(count)
            yield await self._take_shards(lambda: count)

    async def check_room(self, count: int) -> None:
        """Raises `Conflict` if so many more shards are too many."""
        await self.refresh()
        present = sum(len(namespace.shards) for namespace in self.known)
        if present + count > self._shard_limit:
            detail = (
                f"Expected at most {self._shard_limit} shards in all (setting shard_limit), got {count} in addition to "
                f"the {present} there are. Choose a smaller shard count, or remove unused namespaces: "
                "mainspring namespace delete"
            )
            raise Conflict(detail, errors=(FieldError("/shardCount", detail),))

    async def _take_shards(self, count: Callable[[], int]) -> range:
        """So many shard ids that nobody else has; `count` is asked when all namespaces are known. With the counter
        alone, two namespaces would share their rows after it was lost or set back."""
        while True:
            await self.refresh()
            now = self._clock.now_ms()
            record = await self._records.get_record(SEQUENCES, SHARDS, now=now)
            counted = None if record is None else read_record(SEQUENCES, record, _read_count)
            if counted is None and self._unread:
                raise Conflict(
                    f"The shard counter is lost, and {self._unread} namespace record{'s' * (self._unread > 1)} cannot "
                    "be read, so it is unknown which shards are free: mainspring admin doctor names the records"
                )
            first = max((namespace.shards[-1] + 1 for namespace in self.known), default=0)
            if counted is not None:
                first = max(first, counted)
            version = record.version if record else 0
            taken = range(first, first + count())
            value = str(taken.stop).encode()
            if await self._records.put_record(SEQUENCES, SHARDS, value, expect=version, now=now) is not None:
                return taken

    async def get(self, request: NamespaceRef) -> NamespaceView:
        return namespace_view((await self.load(request.name))[0])

    async def list(self, request: ListNamespaces) -> NamespacePage:
        after = "" if request.cursor is UNSET else cursors.read(request.cursor, str)
        page = await self._records.scan_records(
            NAMESPACES, now=self._clock.now_ms(), after=after, limit=request.limit + 1
        )
        shown = page[: request.limit]
        found = [read_record(NAMESPACES, record, _read) for record in shown]
        more = len(page) > request.limit or not ends_scan(page, request.limit + 1)
        return NamespacePage(
            namespaces=tuple(namespace_view(namespace) for namespace in found if namespace is not None),
            next_cursor=cursors.write(shown[-1].key) if more else None,
        )

    async def update(self, request: UpdateNamespace) -> NamespaceView:
        check_change(request)
        if request.secret is not UNSET:
            _check_secret(request.secret)
        while True:
            namespace, version = await self.load(request.name)
            now = self._clock.now_ms()
            changed = replace(namespace, updated_at=now)
            if request.retry_policy is not UNSET:
                changed = replace(changed, retry_policy=request.retry_policy)
            if request.host_limit is not UNSET:
                changed = replace(changed, host_limit=request.host_limit)
            if request.history_retention_days is not UNSET:
                changed = replace(changed, history_retention_days=request.history_retention_days)
            if request.secret is not UNSET and request.secret != namespace.secrets[0]:
                changed = replace(changed, secrets=(request.secret, *namespace.secrets)[:SECRETS_KEPT])
            put = await self._records.put_record(NAMESPACES, request.name, to_json(changed), expect=version, now=now)
            if put is not None:
                self._known[request.name] = changed
                return namespace_view(changed)


_read = msgspec.json.Decoder(Namespace).decode
_read_count = msgspec.json.Decoder(Annotated[int, Meta(ge=0, lt=2**31)]).decode


def _readable(collection: str, record: Record) -> Namespace:
    namespace = read_record(collection, record, _read)
    if namespace is None:
        raise Conflict(f"The record of namespace {record.key!r} cannot be read")
    return namespace


def _check_secret(secret: str) -> None:
    try:
        check_secret(secret)
    except InvalidInput as error:
        raise wrong_field("/secret", error.detail) from error
