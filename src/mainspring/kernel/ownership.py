"""Which instance owns which shard.

The store is the authority. An instance is alive while its lease record (collection `instance`) has not expired.
Every live instance computes the same placement of shards on live instances (`placement`), so nobody has to be asked.
A shard changes hands in one of two ways:

    planned   the owner sees that a shard belongs elsewhere, drains it, releases it; the new owner claims it
    forced    the owner's lease has run out (crash, freeze, partition); the new owner claims at once

A claim raises the shard's version by compare-and-set. That version is the fence which every begin and finish
carries and the store locks, so a deposed owner can write nothing, whatever it believes. `valid()` is the other half:
an instance that could not renew stops by its own monotonic clock, before anybody can have claimed its shards.

Failures: a renewal that fails is tried again at the next tick. A lease record found missing (it expired) or changed
says that others may have claimed the shards; it costs those that they have. A lease that nobody has renewed for its
whole time, by this instance's own monotonic clock, has run out, whatever the store's clock says. Claims and releases
may be lost, or land late: so what the store says about all shards is checked after any doubt and from time to time
(`check`): a shard that is another's is given up, and one that the store says is owned here although it is not is
released. Whatever the state, that and `claim` lead to one living owner per shard, and no shard waits for one that the
store cannot write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock, follow
from mainspring.errors import StoreUnavailable
from mainspring.kernel.placement import Placement
from mainspring.model import Record, Shard, Timer, to_json
from mainspring.store import BATCH_LIMIT, Store, Verdict, all_records, first_version
from mainspring.unreadable import read_record

T = TypeVar("T")
Answer = TypeVar("Answer")

INSTANCES = "instance"
LEASE_RETRY_SECONDS: Final = 0.05
CHECK_LEASES: Final = 10
"""Within this many leases all shards are compared with the store, however many there are."""


class Lease(Struct, frozen=True, rename="camel"):
    """What an instance tells the others about itself."""

    instance: str
    machine: str = ""
    pid: int = 0
    process: str = ""
    started_at: int = 0
    address: str = ""
    """Where instances on other machines reach it; empty: nowhere."""
    local_address: str = ""
    """Where instances on its own machine reach it, if that is a different place: workers share one address."""
    left: bool = False
    """It no longer owns anything, whatever the shards say. The record stays until it expires: somebody was here."""
    finishing: bool = False
    """It has left, but renews its lease while calls that it began are under way."""


read_lease = msgspec.json.Decoder(Lease).decode


class Ownership:
    """This instance's lease and the fences of the shards that it owns."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lease: Lease,
        lease_seconds: float,
        shard_ids: Callable[[], Awaitable[Sequence[int]]],
        randomness: Random,
        is_dead: Callable[[Lease], bool] = lambda _: False,
    ) -> None:
        """`shard_ids` lists all shards there are, including those that others have added.
        `is_dead` may declare another instance dead before its lease runs out (a process of this machine that
        is gone); being wrong costs a repeat, never a lost or stale write."""
        self._store = store
        self._clock = clock
        self._lease = lease
        self.lease_seconds = lease_seconds
        self._shard_ids = shard_ids
        self._random = randomness
        self._is_dead = is_dead
        self._lease_version = 0
        self._published: Lease | None = None
        self.renewed_at = -inf
        """When the lease was last renewed, by the monotonic clock; or rather when that renewal was begun."""
        self.is_renewing = True
        """Whether that goes well: the last renewal did not fail."""
        self._uncertain = False
        """The store may name this instance as owner where it is not, or another where it is: a claim or release ended
        with an unknown outcome, or the lease had run out."""
        self._check_at = 0.0
        self._checked = 0
        """How many of all shards were compared since the last time that all of them had been."""
        self._seen: dict[str, tuple[int, float]] = {}
        """For each lease, the last renewal seen, and when that was."""
        self.awaited = 0
        """Shards that belong here and are still held by an owner that is alive."""
        self._placed: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())
        self._placement = Placement()
        self.fences: dict[int, int] = {}
        self.members: tuple[Lease, ...] = ()
        """The instances that are alive, including this one."""
        self.finishing: frozenset[str] = frozenset()
        """The instances that have left, and still see calls to their end."""
        self._by_name: dict[str, Lease] = {}
        self._strange: set[str] = set()
        """Instances whose lease cannot be read here. They renew it, so they live, and keep what they own."""
        self.alone = True
        """Nobody else has been here for the length of a lease, so nobody else can have written anything unannounced."""

    @property
    def instance(self) -> str:
        return self._lease.instance

    def advertise(self, *, address: str, local_address: str) -> None:
        """From the next renewal on, say where this instance is reached."""
        self._lease = msgspec.structs.replace(self._lease, address=address, local_address=local_address)

    @property
    def is_published(self) -> bool:
        """Whether the others can read what this instance has to say about itself."""
        return self._published == self._lease

    def valid(self) -> bool:
        """Whether the lease still holds, by the monotonic clock. Without it nothing is begun or sent."""
        return self._clock.monotonic() < self.renewed_at + self.lease_seconds

    async def renew(self) -> None:
        """Extend the lease, or take a new one."""
        try:
            await self._renew()
        except Exception:
            self.is_renewing = False
            raise
        self.is_renewing = True

    async def _renew(self) -> None:
        before = await follow(self._clock, self._store.time, is_aligned=self.renewed_at > -inf)
        now = self._clock.now_ms()
        lease = self._lease
        if not await self._write(lease, now):
            # Nobody else writes this record: either an earlier renewal was written and its answer lost, or it expired.
            self._uncertain = True
            present = await self._store.get_record(INSTANCES, self.instance, now=now)
            self._lease_version = present.version if present else 0
            if not await self._write(lease, now):
                return
        self._published = lease
        await self._see_members(now)
        self.renewed_at = before  # only once it is known who else is alive

    async def keeps(self, timer: Timer) -> bool:
        """Whether a row that was begun here is still this instance's to send. Its lease held then, and may have ended
        while something was looked up: either it is renewed, or the shard is lost."""
        while self.fences.get(timer.shard_id) == timer.fence:
            if self.valid():
                return True
            await asyncio.sleep(LEASE_RETRY_SECONDS)
        return False

    async def _write(self, lease: Lease, now: int) -> bool:
        """Returns whether the record was as this instance had left it. If the write lands late, it hits no lease that
        was taken since: each begins with a version of its own."""
        record = await self._store.put_record(
            INSTANCES,
            self.instance,
            to_json(lease),
            expect=self._lease_version,
            now=now,
            expires_at=now + round(self.lease_seconds * 1000),
            first=first_version(self._random),
        )
        if record is not None:
            self._lease_version = record.version
        return record is not None

    async def _see_members(self, now: int) -> None:
        renewed = self._renewed([record async for record in all_records(self._store, INSTANCES, lambda: now)])
        leases = [read_record(INSTANCES, record, read_lease) for record in renewed]
        # Somebody wrote a lease that cannot be read, but nobody that a shard could be given to.
        members = [lease for lease in leases if lease is not None]
        self._strange = {record.key for record, lease in zip(renewed, leases, strict=True) if lease is None}
        self.alone = len(renewed) <= 1
        self.members = tuple(m for m in members if m.instance == self.instance or not (m.left or self._is_dead(m)))
        self.finishing = frozenset(m.instance for m in members if m.finishing and not self._is_dead(m))
        self._by_name = {member.instance: member for member in self.members}

    def _renewed(self, leases: Sequence[Record]) -> list[Record]:
        """Those that were renewed within the length of a lease, by this instance's own clock."""
        monotonic = self._clock.monotonic()
        seen = {}
        for lease in leases:
            known, since = self._seen.get(lease.key, (0, 0.0))
            seen[lease.key] = (lease.version, since if known == lease.version else monotonic)
        self._seen = seen
        return [lease for lease in leases if monotonic - seen[lease.key][1] <= self.lease_seconds]

    async def place(self) -> None:
        """Spread all shards over the live members. If nobody can tell which shards there are, those known before are
        spread; raises `StoreUnavailable` if they were never known."""
        shards, _ = self._placed
        try:
            shards = tuple(await self._shard_ids())
        except StoreUnavailable:
            if not shards:
                raise
        instances = tuple(sorted(member.instance for member in self.members))
        if self._placed != (shards, instances):
            await self._placement.follow(shards, instances)
            self._placed = (shards, instances)

    async def is_gone(self, instance: str) -> bool:
        """Whether an instance is not alive: its lease has ended or was given back, or its process is known to be gone.

        It then does nothing more under its lease, as `valid` ensures. For this instance itself the answer is no.
        """
        if instance == self.instance:
            return False
        record = await self._store.get_record(INSTANCES, instance, now=self._clock.now_ms())
        if record is None:
            return True
        lease = read_record(INSTANCES, record, read_lease)
        return lease is not None and (lease.left or self._is_dead(lease))

    def owner_of(self, shard_id: int) -> Lease | None:
        """The member that a shard belongs to, as of the last renewal. Another may still own it for a moment."""
        return self._by_name.get(self._placement.owner_of(shard_id))

    def misplaced(self) -> list[int]:
        """Owned shards that belong to another live instance: to be drained and released."""
        return [shard_id for shard_id in self.fences if self._placement.owner_of(shard_id) != self.instance]

    async def claim(self) -> list[int]:
        """Claim the shards that belong here and are free, or whose owner is not alive. Returns the new ones; the others
        are awaited, including those that cannot be reached.

        Without a lease nothing is claimed: it was too long ago that anybody looked who is alive.
        """
        missing = [s for s in self._placement.shards_of(self.instance) if s not in self.fences]
        gained: list[int] = []
        for batch in _batches(missing):
            if not self.valid():
                break
            with suppress(StoreUnavailable):  # of these shards, which may be all in one place
                for claimed in await _in_halves(self._claim, batch):
                    gained += claimed
        self.awaited = len(missing) - len(gained)
        return gained

    async def _claim(self, shard_ids: Sequence[int]) -> list[int]:
        found = [shard for shard in await self._store.shards(shard_ids) if shard is not None]
        alive = await self._alive({shard.owner for shard in found})
        claims = [Shard(s.shard_id, s.version, self.instance) for s in found if s.owner not in alive]
        verdicts = await self._certainly(self._store.claim_shards(claims))
        crashpoint.reach(crashpoint.SHARD_CLAIMED)
        gained = [claim for claim, verdict in zip(claims, verdicts, strict=True) if verdict is Verdict.APPLIED]
        self.fences |= {claim.shard_id: claim.version + 1 for claim in gained}
        return [claim.shard_id for claim in gained]

    async def _alive(self, owners: set[str]) -> set[str]:
        """Which of these owners are alive. One that the last renewal did not see may have come since: look."""
        known = {member.instance for member in self.members} | self._strange
        strangers = sorted(owners - known - self._seen.keys() - {"", self.instance})
        return (owners & known - {self.instance}) | {name for name in strangers if not await self.is_gone(name)}

    async def release(self, shard_ids: Sequence[int]) -> int:
        """Returns how many were."""
        return await self._release([Shard(s, self.fences.pop(s), self.instance) for s in shard_ids if s in self.fences])

    async def _release(self, claims: Sequence[Shard]) -> int:
        """What cannot be released now is found again by `check`."""
        released = 0
        for batch in _batches(claims):
            with suppress(StoreUnavailable):
                for verdicts in await _in_halves(self._give_back, batch):
                    released += verdicts.count(Verdict.APPLIED)
            crashpoint.reach(crashpoint.SHARD_RELEASED)
        return released

    async def _give_back(self, claims: Sequence[Shard]) -> list[Verdict]:
        return await self._certainly(self._store.release_shards(claims))

    async def _certainly(self, writing: Awaitable[list[Verdict]]) -> list[Verdict]:
        """Remember that a write may have happened although nobody got its answer."""
        try:
            verdicts = await writing
        except BaseException:
            self._uncertain = True
            raise
        self._uncertain = self._uncertain or Verdict.UNAVAILABLE in verdicts
        return verdicts

    async def check(self) -> set[int]:
        """Compare what the store says with what is believed here; returns the shards that are no longer owned here.

        A shard that the store says is owned here although it is not is released: others wait for it. Done after any
        doubt, and once per lease if there are other instances: then with the shards owned here, and some of all others.
        """
        monotonic = self._clock.monotonic()
        if not self._uncertain and (self.alone or monotonic < self._check_at):
            return set()
        self._check_at = monotonic + self.lease_seconds
        shards = self._placement.shards if self._uncertain else self._next_to_check()
        self._uncertain = False
        lost: set[int] = set()
        for batch in _batches(shards):
            try:
                lost = lost.union(*await _in_halves(self._compare, batch))
            except StoreUnavailable:
                self._uncertain = True
            except BaseException:
                self._uncertain = True
                raise
        return lost

    def _next_to_check(self) -> list[int]:
        """Every instance asking for all shards in every lease would be most of what a large cluster asks its store."""
        shards = self._placement.shards
        some = shards[self._checked : self._checked + max(BATCH_LIMIT, -(-len(shards) // CHECK_LEASES))]
        if len(some) == len(shards):
            return shards
        self._checked = (self._checked + len(some)) % len(shards)
        return list(dict.fromkeys((*self.fences, *some)))

    async def _compare(self, shard_ids: Sequence[int]) -> set[int]:
        """Whatever is claimed or released meanwhile is no news: only what is believed before and after counts."""
        believed = dict(self.fences)
        found = [shard for shard in await self._store.shards(shard_ids) if shard is not None]
        ours = believed.keys() | self.fences.keys()
        stray = [s for s in found if s.owner == self.instance and s.shard_id not in ours]
        await self._release(stray)
        return {
            shard.shard_id
            for shard in found
            if (fence := believed.get(shard.shard_id)) is not None
            and (fence, self.instance) != (shard.version, shard.owner)
            and self.fences.get(shard.shard_id) == fence
        }

    def withdraw(self) -> None:
        """From the next renewal on, say that this instance has left, except for calls that it sees to their end."""
        self._lease = msgspec.structs.replace(self._lease, left=True, finishing=True)

    async def resign(self) -> None:
        """Say that this instance has left, and release everything, so that others need not wait for the lease to run
        out. A shard that cannot be released keeps nobody from the others: whoever reads the lease may claim them."""
        self.renewed_at = -inf
        try:
            lease = msgspec.structs.replace(self._lease, left=True, finishing=False)
            await self._write(lease, self._clock.now_ms())
        finally:
            await self.release(list(self.fences))


async def _in_halves(
    ask: Callable[[Sequence[T]], Coroutine[Any, Any, Answer]], items: Sequence[T], *, is_repeat: bool = False
) -> list[Answer]:
    """What failed in an unforeseen way is tried again, in halves: what is wrong with one shard must not affect others.

    Returns what was answered. Raises `StoreUnavailable` if that was the first answer.
    """
    try:
        return [await ask(items)]
    except StoreUnavailable:
        if is_repeat:
            return []
        raise
    except Exception:  # noqa: BLE001 - see above
        telemetry.exception("the store failed in an unforeseen way")
        if len(items) <= 1:
            return []
        half = len(items) // 2
        first = await _in_halves(ask, items[:half], is_repeat=True)
        return first + await _in_halves(ask, items[half:], is_repeat=True)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + BATCH_LIMIT] for start in range(0, len(items), BATCH_LIMIT))
