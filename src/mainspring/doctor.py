"""Looks through a whole store, without an instance: what cannot be read, which shards nobody owns, what the file says.

Nothing is changed unless that is asked for. Records that can only be looked up by their key are not found here, except
those of fetches, which rows lead to, and those of the idempotency library where the database lists them all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from mainspring import unreadable
from mainspring.cluster_secret import CLUSTER
from mainspring.cluster_secret import decode as decode_secret
from mainspring.delivery.secrets import Secrets
from mainspring.errors import Conflict, NotFound, StoreUnavailable, Unsupported
from mainspring.fetches.pools import EXECUTORS, ExecutorLease
from mainspring.fetches.record import FETCHES
from mainspring.fetches.record import NAMESPACE as FETCH_ROWS
from mainspring.fetches.record import decode as read_fetch
from mainspring.fetches.rows import executor_of, read_rows, summary_of
from mainspring.idempotency.entries import COLLECTION as KEYS
from mainspring.idempotency.entries import NOTES, read_header, read_note
from mainspring.jobs.registry import JOBS
from mainspring.kernel.ownership import INSTANCES, Lease, read_lease
from mainspring.model import Namespace
from mainspring.namespaces.service import DEFAULT, NAMESPACES, SYSTEM
from mainspring.origins.outbox import OUTBOX
from mainspring.store import (
    BATCH_LIMIT,
    Remove,
    Store,
    TimerFilter,
    Verdict,
    all_records,
    timer_pages,
)
from mainspring.timers.carrier import GONE_URLS
from mainspring.unreadable import Unreadable, key_of_timer, read_record

PAGE: Final = 500
_read_namespace = msgspec.json.Decoder(Namespace).decode
_LISTED: Final[dict[str, Callable[[bytes], object]]] = {
    EXECUTORS: msgspec.json.Decoder(ExecutorLease).decode,
    GONE_URLS: bytes.decode,
    JOBS: msgspec.json.decode,
    CLUSTER: decode_secret,
    OUTBOX: msgspec.json.decode,
    KEYS: read_header,
    NOTES: read_note,
}
"""The other collections that are listed, at least by some databases, and what their records are."""


_REMOVABLE: Final = frozenset({FETCHES, GONE_URLS, NOTES, OUTBOX})


@runtime_checkable
class Checkable(Protocol):
    """A store that can check its own file."""

    async def check(self) -> list[str]:
        """What is wrong with it."""
        ...


class Findings(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was counted, and what was found. Where too much is damaged, nobody can count."""

    healthy: bool
    """Nothing was found."""
    instances: int | None = None
    """That are alive."""
    namespaces: int | None = None
    """Those that users know; `timers` are the ones in these."""
    timers: int | None = None
    internal_rows: int | None = None
    """Of jobs and fetches: clocks, runs, calls."""
    shards: int | None = None
    """Of all namespaces, including those for jobs and fetches."""
    unowned_shards: tuple[int, ...] = ()
    """Whose owner is not alive, although somebody is. If nobody is, that is as it should be."""
    unreadable: tuple[Unreadable, ...] = ()
    damage: tuple[str, ...] = ()
    """Of the database file, as the database says it."""


def damaged(*damage: str) -> Findings:
    """For a store about which nothing else can be said."""
    return Findings(healthy=False, damage=damage)


async def examine(store: Store) -> Findings:
    """Read everything once, as far as damage lets it be read."""
    unreadable.forget()
    damage = await store.check() if isinstance(store, Checkable) else []
    try:
        return await _look(store, damage)
    except StoreUnavailable as error:
        if not damage:
            raise
        return damaged(*damage, f"The rest cannot be read: {error.detail}")


async def _look(store: Store, damage: Sequence[str]) -> Findings:
    now = await store.time()
    known, internal = [
        [
            namespace
            async for record in all_records(store, collection, lambda: now)
            if (namespace := read_record(collection, record, _read_namespace)) is not None
        ]
        for collection in (NAMESPACES, SYSTEM)
    ]
    alive = await _alive(store, now)
    # What is being deleted belongs to nobody.
    wanted = [namespace for namespace in (*known, *internal) if namespace.deletion is None]
    shard_ids = [shard_id for namespace in wanted for shard_id in namespace.shards]
    unowned: list[int] = []
    for start in range(0, len(shard_ids), BATCH_LIMIT):
        found = await store.shards(shard_ids[start : start + BATCH_LIMIT])
        unowned += [shard.shard_id for shard in found if alive and shard is not None and shard.owner not in alive]
    timers = sum([await _look_through(store, namespace, now) for namespace in known])
    internal_rows = sum([await _look_through(store, namespace, now) for namespace in internal])
    await _look_at_records(store, now)
    unread = tuple(unreadable.known())
    return Findings(
        healthy=not (unowned or unread or damage),
        instances=len(alive),
        namespaces=len(known),
        timers=timers,
        internal_rows=internal_rows,
        shards=len(shard_ids),
        unowned_shards=tuple(unowned),
        unreadable=unread,
        damage=tuple(damage),
    )


async def discard(store: Store, found: Sequence[Unreadable]) -> int:
    """Remove what cannot be read but has a known version; returns how many there were.

    A namespace is left alone, because its timers would be lost with it, and so are jobs, which their service shows as
    broken, and leases, which somebody renews or nobody needs. Without what is kept for a key, its work could run again.
    """
    now = await store.time()
    removed = 0
    for one in found:
        if not one.version:
            continue
        if one.kind == "timer":
            [verdict] = await store.write([Remove(key_of_timer(one), one.version)])
            removed += verdict is Verdict.APPLIED
        elif one.kind in _REMOVABLE:
            removed += await store.delete_record(one.kind, one.name, expect=one.version, now=now)
    return removed


async def drop_namespace(store: Store, name: str) -> int:
    """Remove a namespace that has no timers, while no instance runs: one would still know it. Returns its shards.

    An unreadable timer counts, too: the next version may understand it.
    """
    now = await store.time()
    if alive := await _alive(store, now):
        raise Conflict(f"{len(alive)} instance{'s are' if len(alive) > 1 else ' is'} running: stop all of them first")
    if name == DEFAULT:
        raise Conflict("Namespace 'default' cannot be removed: every start would create it again")
    record = await store.get_record(NAMESPACES, name, now=now)
    if record is None:
        raise NotFound(f"Namespace {name!r} does not exist")
    namespace = read_record(NAMESPACES, record, _read_namespace)
    if namespace is None:
        raise Conflict(f"The record of namespace {name!r} cannot be read: see `mainspring admin doctor`")
    unreadable.forget()
    async for _ in timer_pages(store, namespace.shards, TimerFilter(), limit=1):
        raise Conflict(
            f"Namespace {name!r} has timers: delete them first, while an instance is running, with "
            f"mainspring timer delete --namespace {name} --all"
        )
    if damaged := sum(one.kind == "timer" for one in unreadable.known()):
        raise Conflict(
            f"Namespace {name!r} has {damaged} timer{'s' * (damaged > 1)} "
            "that cannot be read: see `mainspring admin doctor`, which also removes them"
        )
    if not await store.delete_record(NAMESPACES, name, expect=record.version, now=now):
        raise Conflict(f"Namespace {name!r} was changed in the meantime")
    return namespace.shard_count


async def _alive(store: Store, now: int) -> set[str]:
    alive: set[str] = set()
    async for record in all_records(store, INSTANCES, lambda: now):
        lease: Lease | None = read_record(INSTANCES, record, read_lease)
        if lease is None or not lease.left:
            alive.add(record.key)
    return alive


async def _look_through(store: Store, namespace: Namespace, now: int) -> int:
    """All rows of a namespace; for fetches, also what they say and the records that they lead to."""
    count = 0
    async for page in timer_pages(store, namespace.shards, TimerFilter(), limit=PAGE):
        count += len(page)
        if namespace.name == FETCH_ROWS:
            read_rows(page, lambda row: (summary_of(row, Secrets()), executor_of(row)))
            for row in page:
                record = await store.get_record(FETCHES, row.timer_id, now=now)
                if record is not None:
                    read_record(FETCHES, record, read_fetch)
    return count


async def _look_at_records(store: Store, now: int) -> None:
    for collection, read in _LISTED.items():
        with suppress(Unsupported):
            async for record in all_records(store, collection, lambda: now):
                read_record(collection, record, read)
