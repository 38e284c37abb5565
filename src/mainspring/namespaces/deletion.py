"""The deletion of a namespace, in steps that are repeated until it is gone.

    mark     its record says that it is being deleted: whoever reads that adds no timer, and owns none of its shards
    close    wait until nobody goes by what was read before the mark (`CACHE_SECONDS`); until then it can be called off
    fence    claim each shard for nobody, so that no owner that has not noticed can begin or record anything in it
    empty    remove its timers and its history, shard by shard; the record says how far that has come
    remove   remove the record

A step takes a few seconds. Whoever is killed leaves a record that says where the next step goes on. A deletion that is
not forced removes no timer: the first one that it meets calls it off, also behind the fence and at the very end. Shard
ids are never given out again: a row that a frozen program writes into one later is seen by nobody, and called by
nobody. An instance does not acknowledge one (`NamespaceService.check_added`); a program's own transaction may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from msgspec import UNSET
from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.model import Deletion, Namespace, Shard, State
from mainspring.namespaces.cache import known_everywhere_at
from mainspring.namespaces.messages import DeleteNamespace, DeletionView
from mainspring.namespaces.service import DEFAULT, NamespaceService
from mainspring.namespaces.steps import PAGE, deadline_of_step, forget_history, is_reached, undisturbed
from mainspring.store import Remove, TimerFilter, TimerStore, Verdict, timer_pages, was_applied
from mainspring.unreadable import key_of_timer, timers_in
from mainspring.wire.instants import to_instant, to_ms

COUNT_LIMIT: Final = 100_000
SHARDS_AT_ONCE: Final = 64
NOBODY: Final = "deleted"
"""The owner of a shard whose namespace is being deleted."""


class NamespaceDeletion:
    def __init__(self, *, store: TimerStore, namespaces: NamespaceService, clock: Clock) -> None:
        self._store = store
        self._namespaces = namespaces
        self._clock = clock

    async def step(self, request: DeleteNamespace) -> DeletionView:
        """Do a few seconds' worth of it. Raises `Conflict` if the namespace has timers, unless it is forced."""
        return await undisturbed(lambda: self._step(request))

    async def _step(self, request: DeleteNamespace) -> DeletionView:
        if request.name == DEFAULT:
            raise Conflict("Namespace 'default' cannot be deleted: every start would create it again")
        if request.cancel and (request.force or request.dry_run):
            raise InvalidInput("Expected cancel alone, got it with force or dryRun")
        namespace, version = await self._namespaces.load(request.name)
        if request.created_at is not UNSET and to_ms(request.created_at) != namespace.created_at:
            meant = to_instant(to_ms(request.created_at)).isoformat()
            raise NotFound(f"Namespace {request.name!r} that was created at {meant} does not exist")
        if request.dry_run:
            return await self._count(namespace)
        if request.cancel:
            return await self._cancel(namespace, version)
        deadline = deadline_of_step(self._clock)
        deletion = namespace.deletion
        if not request.force and (deletion is None or deletion.force):  # whoever began it may have wanted more
            await self._check_empty(namespace, namespace.shards)
        if deletion is None or (request.force and not deletion.force):
            deletion = replace(deletion or Deletion(), force=request.force)
            namespace, version = await self._keep(namespace, deletion, version)
        if deletion.closed_at is None:  # counted from when everybody can read the mark
            deletion = replace(deletion, closed_at=known_everywhere_at(self._clock.now_ms()))
            namespace, version = await self._keep(namespace, deletion, version)
        assert deletion.closed_at is not None, "Expected a deletion that says when it closes"
        if not await is_reached(deletion.closed_at, clock=self._clock, deadline=deadline):
            return _view(namespace, deletion)
        if not deletion.begun:
            await self._check_still_empty(namespace, namespace.shards, version)
            deletion = replace(deletion, begun=True)
            namespace, version = await self._keep(namespace, deletion, version)
        deletion = await self._empty(namespace, deletion, version, deadline)
        namespace, version = await self._keep(namespace, deletion, version)
        if deletion.shards < len(namespace.shards):
            return _view(namespace, deletion)
        await self._check_still_empty(namespace, namespace.shards, version)
        await self._namespaces.remove(namespace.name, version=version)
        return replace(_view(namespace, deletion), deleted=True)

    async def _keep(self, namespace: Namespace, deletion: Deletion | None, version: int) -> tuple[Namespace, int]:
        return await self._namespaces.rewrite(namespace, replace(namespace, deletion=deletion), version=version)

    async def _cancel(self, namespace: Namespace, version: int) -> DeletionView:
        deletion = namespace.deletion or Deletion()
        if deletion.begun:
            raise Conflict(
                f"Namespace {namespace.name!r} cannot be kept: some of it may be deleted already. Repeat the deletion"
            )
        await self._keep(namespace, None, version)
        return replace(_view(namespace, Deletion()), cancelled=True)

    async def _check_empty(self, namespace: Namespace, shards: Sequence[int]) -> None:
        async for _ in timer_pages(self._store, shards, TimerFilter(), limit=1):
            _refuse(namespace, "has timers", "delete them first, or ask for `force` to delete them with it")
        if damaged := len(timers_in(shards)):
            what = f"has {damaged} timer{'s' * (damaged > 1)} that cannot be read"
            _refuse(namespace, what, "ask for `force` to delete them with it")

    async def _check_still_empty(self, namespace: Namespace, shards: Sequence[int], version: int) -> None:
        """Unless it is forced. Somebody may have added a timer before the mark was known everywhere, or in a
        transaction that committed late. It is not lost: the deletion is."""
        if namespace.deletion is None or namespace.deletion.force:
            return
        try:
            await self._check_empty(namespace, shards)
        except Conflict:
            await self._keep(namespace, None, version)
            raise

    async def _count(self, namespace: Namespace) -> DeletionView:
        timers = parked = 0
        is_cut_short = False
        deadline = deadline_of_step(self._clock)
        async for page in timer_pages(self._store, namespace.shards, TimerFilter(), limit=PAGE):
            timers += len(page)
            parked += sum(timer.state is State.PARKED for timer in page)
            if timers >= COUNT_LIMIT or self._clock.monotonic() >= deadline:
                is_cut_short = True
                break
        timers += len(timers_in(namespace.shards))
        view = _view(namespace, namespace.deletion or Deletion())
        return replace(view, dry_run=True, timers=timers, parked=parked, history=None, counts_are_minimum=is_cut_short)

    async def _empty(self, namespace: Namespace, deletion: Deletion, version: int, deadline: float) -> Deletion:
        """As many shards as there is time for; at least some rows."""
        shards = namespace.shards[deletion.shards :]
        for start in range(0, len(shards), SHARDS_AT_ONCE):
            some = shards[start : start + SHARDS_AT_ONCE]
            await self._fence(some)
            await self._check_still_empty(namespace, some, version)
            if deletion.force:
                async for page in timer_pages(self._store, some, TimerFilter(), limit=PAGE):
                    deletion = await self._remove([Remove(timer.key, timer.version) for timer in page], deletion)
                    if self._clock.monotonic() >= deadline:
                        return deletion
                damaged = [Remove(key_of_timer(one), one.version) for one in timers_in(some) if one.version]
                deletion = await self._remove(damaged, deletion)
            removed, is_done = await forget_history(self._store, some, clock=self._clock, deadline=deadline)
            deletion = replace(deletion, history=deletion.history + removed)
            if not is_done:
                return deletion
            deletion = replace(deletion, shards=deletion.shards + len(some))
            if self._clock.monotonic() >= deadline:
                break
        return deletion

    async def _remove(self, changes: Sequence[Remove], deletion: Deletion) -> Deletion:
        """One that was changed meanwhile is found again."""
        removed = sum(map(was_applied, await self._store.write(changes))) if changes else 0
        return replace(deletion, timers=deletion.timers + removed)

    async def _fence(self, shard_ids: Sequence[int]) -> None:
        """Nothing is begun or recorded under an older claim from then on."""
        while True:
            found = await self._store.shards(shard_ids)
            claims = [Shard(one.shard_id, one.version, NOBODY) for one in found if one and one.owner != NOBODY]
            verdicts = await self._store.claim_shards(claims) if claims else []
            if None in found or Verdict.UNAVAILABLE in verdicts:
                raise StoreUnavailable("A part of the database that holds some of the shards cannot be reached")
            if Verdict.STALE not in verdicts:
                return


def _refuse(namespace: Namespace, why: str, what_to_do: str) -> NoReturn:
    deletion = namespace.deletion
    if deletion is None or not deletion.force:
        raise Conflict(f"Namespace {namespace.name!r} {why}: {what_to_do}")
    keep = "" if deletion.begun else ", or for `cancel` to keep it"
    raise Conflict(
        f"Namespace {namespace.name!r} {why}, and is already being deleted with them: ask for `force` to go on{keep}"
    )


def _view(namespace: Namespace, deletion: Deletion) -> DeletionView:
    closing = deletion.closed_at is not None and not deletion.begun
    return DeletionView(
        name=namespace.name,
        dry_run=False,
        deleted=False,
        closing_until=to_instant(deletion.closed_at) if closing and deletion.closed_at else None,
        timers=deletion.timers,
        parked=None,
        history=deletion.history,
        counts_are_minimum=False,
        shards_done=deletion.shards,
        shard_count=len(namespace.shards),
    )
