"""Namespaces: a record each, kept in memory because every create and every callback needs one.

The shard range of a namespace is taken from one counter, above all existing ranges, so ranges never overlap. It never
changes.
The rows of jobs and fetches live in *system* namespaces, made at their first use and kept apart from those of users:
no request reaches them by name, and no user's namespace may be called like one.
Changes made by others, and those of this instance whose answer was lost, are seen at the next `refresh`, which the
keeper asks for at each renewal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.delivery.signatures import check_secret, new_secret
from mainspring.errors import Conflict, FieldError, InvalidInput, NotFound, wrong_field
from mainspring.model import Namespace, Record, to_json
from mainspring.namespaces.cache import reread
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
SYSTEM_SHARDS = 16
SEQUENCES = "sequence"
SHARDS = "shards"
DEFAULT = "default"
SECRETS_KEPT = 2


class NamespaceService:
    def __init__(
        self,
        *,
        records: RecordStore,
        clock: Clock,
        randomness: random.Random,
        created: Callable[[], None],
        shard_limit: int = 16_384,
    ) -> None:
        """`created` is called when there are new shards for somebody to own. `shard_limit` bounds the shards of all
        namespaces together: every one of them is claimed at each start, and looked at again and again."""
        self._records = records
        self._created = created
        self._shard_limit = shard_limit
        self._clock = clock
        self._random = randomness
        self._known: dict[str, Namespace] = {}
        self._system: dict[str, Namespace] = {}
        self._unread = 0
        self._creating = asyncio.Lock()
        """One at a time checks whether there is room and takes it; with several instances, each may go over by one."""

    async def open(self) -> None:
        """Load what exists and make sure that `default` does."""
        await self.refresh()
        if DEFAULT not in self._known:
            try:
                await self.create(CreateNamespace(name=DEFAULT))
            except Conflict:
                await self.refresh()  # another instance may have started at the same moment
                if DEFAULT not in self._known:
                    raise

    async def refresh(self) -> None:
        before = dict(self._known)
        found, unread = await self._scan(NAMESPACES)
        self._known = reread(found, before=before, known=self._known)
        before = dict(self._system)
        found, unread_of_system = await self._scan(SYSTEM)
        self._system = reread(found, before=before, known=self._system)
        self._unread = unread + unread_of_system

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
        """The shards of all namespaces, as the store has them now."""
        await self.refresh()
        return [shard_id for namespace in self.known for shard_id in namespace.shards]

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
            first_shard = await self._take_shards(SYSTEM_SHARDS)
            made = Namespace(
                name=name,
                first_shard=first_shard,
                shard_count=SYSTEM_SHARDS,
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
        return namespace if namespace is not None else (await self._load(name))[0]

    async def _load(self, name: str) -> tuple[Namespace, int]:
        record = await self._records.get_record(NAMESPACES, name, now=self._clock.now_ms())
        if record is None:
            raise NotFound(f"Namespace {name!r} does not exist")
        namespace = _readable(NAMESPACES, record)
        self._known[name] = namespace
        return namespace, record.version

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
        await self._check_room(request.shard_count)
        namespace = Namespace(
            name=request.name,
            first_shard=await self._take_shards(request.shard_count),
            shard_count=request.shard_count,
            created_at=now,
            updated_at=now,
            secrets=(new_secret(self._random.randbytes(32)) if request.secret is UNSET else request.secret,),
            retry_policy=request.retry_policy,
            host_limit=request.host_limit,
            history_retention_days=request.history_retention_days,
        )
        value, first = to_json(namespace), first_version(self._random)
        if await self._records.put_record(NAMESPACES, request.name, value, expect=0, now=now, first=first) is None:
            raise Conflict(f"Namespace {request.name!r} already exists")
        self._known[request.name] = namespace
        self._created()
        return namespace_view(namespace)

    async def _check_room(self, count: int) -> None:
        await self.refresh()
        present = sum(namespace.shard_count for namespace in self.known)
        if present + count > self._shard_limit:
            detail = (
                f"Expected at most {self._shard_limit} shards in all (setting shard_limit), got {count} in addition to "
                f"the {present} there are. Choose a smaller shard count, or remove unused namespaces: "
                "mainspring admin drop-namespace"
            )
            raise Conflict(detail, errors=(FieldError("/shardCount", detail),))

    async def _take_shards(self, count: int) -> int:
        """The first of `count` shard ids that nobody else has. With the counter alone, two namespaces would
        share their rows after it was lost or set back."""
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
            first = max((namespace.shards.stop for namespace in self.known), default=0)
            if counted is not None:
                first = max(first, counted)
            version = record.version if record else 0
            value = str(first + count).encode()
            if await self._records.put_record(SEQUENCES, SHARDS, value, expect=version, now=now) is not None:
                return first

    async def get(self, request: NamespaceRef) -> NamespaceView:
        return namespace_view((await self._load(request.name))[0])

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
            namespace, version = await self._load(request.name)
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
