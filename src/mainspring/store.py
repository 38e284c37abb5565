"""The two contracts on which everything rests: `TimerStore` and `RecordStore`.

A database implements both and nothing else has to know it. What holds for every verb:

- **Acknowledged means committed.** A call that returns has made its writes durable, as durable as the
  database was configured to be. Reads see every write that was acknowledged before they began.
- **A store stores.** It reads no wall clock for a decision (`now` is an argument), retries nothing,
  publishes nothing, logs nothing. `time()` is the one exception: it *reports* the database's clock.
- **Errors.** `StoreUnavailable` when the database refused or could not be reached. After it the outcome of
  the call is not known: the caller reads the state again before its next step. A batch is then wholly
  written or wholly not written, per shard. No verb raises for what is wrong with one item, or with one shard
  of many: that is the verdict of these items (`UNAVAILABLE`, `REFUSED`), and the others go on.
- **Batches** are lists in and lists out, results in the order of the items. Items of one batch that name
  the same row are applied in order. An empty batch does nothing. Callers keep batches at or below `BATCH_LIMIT`.
- **Compare and set.** Every write names the version it expects (0: the row must not exist) and leaves
  version + 1. An item whose expectation fails changes nothing and is reported; the others go on.
- **Identity.** A row that is removed and created again is another row: whoever creates one draws its first version
  (`first_version`), so that no version, and nothing decided on the basis of one, comes back.
- **Rows that cannot be read** are set aside (`unreadable`) and left as they are. Every read behaves as if they were not
  there and goes on after them; only `damaged` reports them, with the version by which they are replaced or removed.
- **Pages** are bounded in bytes, too: at about `PAGE_BYTES` a page ends before its limit. A page of a list of timers
  says whether and from where the list goes on (`ListPage.after`); a list of records ends with a page that is neither
  full nor large (`ends_scan`); for what is due, `next_due_at` tells.
- **Lists** read no more than the part of the due order in which matching rows can be, and of that about `LOOK_ROWS`
  rows a page, so that no list, whatever it looks for and among however many, holds up others.
- **Cancellation** of a waiting call never leaves a half-written batch; the write may still happen.

Both contracts are checked by the suites in `mainspring.testing`, which run over every store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from itertools import chain
from random import Random
from typing import ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.model import FOREVER, LAST_VERSION, Attempt, Record, Shard, State, Timer, TimerKey
from mainspring.unreadable import Unreadable

BATCH_LIMIT: Final = 1000
PAGE_BYTES: Final = 8 * 1024 * 1024
"""About how much the payloads and documents of one page's rows come to."""
DUE_BYTES: Final = 1024 * 1024
"""The same for a page of due rows, where a store reads in a thread of its own: many shards are read at once, one after
another, and whoever comes next waits."""
LOOK_ROWS: Final = 2_000
"""About how many rows a list looks through for one page. Each may have some ten thousand bytes to look at."""
LOOK_SHARD_ROWS: Final = 8
"""How many of each shard at least, so that a list over very many shards gets on."""


class Position(NamedTuple):
    """A place in the due order of a store: due instant, then uuid, compared as bytes. The same everywhere."""

    due_at: int
    uuid: str


START: Final = Position(-(2**63), "")
"""Before every row: no database holds an earlier instant."""
END: Final = Position(FOREVER + 1, "")
"""After every row."""


class Verdict(Enum):
    """What became of one item of a batch."""

    APPLIED = "applied"
    STALE = "stale"
    """The row does not have the expected version, or is gone."""
    FENCED = "fenced"
    """The shard has a newer owner. Nothing of that shard was written."""
    UNAVAILABLE = "unavailable"
    """Its shard could not be reached, or somebody's open transaction holds its row. Whether it was written is unknown,
    as after `StoreUnavailable`, but only for this item."""
    REFUSED = "refused"
    """The database cannot hold the row: it is too large. Nothing of this item was written."""


def was_applied(verdict: Verdict) -> bool:
    """True if it was written; False if the row is not as expected: read it, and try again.

    Raises what a user should be told about a row that nobody can reach, or that the database cannot hold.
    """
    if verdict is Verdict.UNAVAILABLE:
        raise StoreUnavailable("The row is locked by another transaction, or its part of the database is unreachable")
    if verdict is Verdict.REFUSED:
        raise TooLarge("The row is larger than the database can hold")
    return verdict is Verdict.APPLIED


def first_version(randomness: Random) -> int:
    """The version of a row that is to be created: one that no row with its key has ever had or will have."""
    return randomness.getrandbits(62) + 1


def next_version(present: int, first: int) -> int:
    """The version that a write leaves: one more than the current one, or `first` for what is new.

    What somebody else has given a version that cannot grow is replaced as if it were new."""
    return present + 1 if 0 < present < LAST_VERSION else first


class Put(Struct, frozen=True):
    """Write `timer` whole; its `version` becomes `expect` + 1. With `expect` 0 the row must not exist, and gets the
    version that `timer` has: see `first_version`."""

    timer: Timer
    expect: int

    @property
    def key(self) -> TimerKey:
        return self.timer.key


class Remove(Struct, frozen=True):
    """Remove a row that has version `expect`."""

    key: TimerKey
    expect: int


class Begin(Struct, frozen=True):
    """Start an attempt: state running, attempts + 1, version + 1, fence set; all else stays."""

    key: TimerKey
    fence: int
    expect: int


class RecordPut(Struct, frozen=True, kw_only=True):
    """Write a record that has version `expect`, as `RecordStore.put_record` does."""

    collection: str
    key: str
    value: bytes
    expect: int
    now: int
    expires_at: int | None = None


class Finish(Struct, frozen=True):
    """End an attempt. `change` is None when the row is no longer this attempt's: then only history is written."""

    key: TimerKey
    fence: int
    change: Put | Remove | None
    attempt: Attempt | None
    """Appended to the history if, and only if, the change is applied (or there is none)."""
    record: RecordPut | None = None
    """Written likewise. Only for stores that can do both at once: see `FinishesWithRecords`."""


class DuePage(NamedTuple):
    """Rows in due order, and the due instant of the first row after them, whether due or not.

    A page without rows has nothing due after it either: unreadable rows alone do not make a page.
    """

    timers: list[Timer]
    next_due_at: int | None


class ListPage(NamedTuple):
    """Matching rows in due order, and the position after which the list goes on; None at its end.

    A page may be short, or even empty, and yet not be the last: then many rows were looked through in vain.
    """

    timers: list[Timer]
    after: Position | None


class TimerFilter(Struct, frozen=True, kw_only=True):
    """Which timers. All conditions hold together; the defaults match everything."""

    states: tuple[State, ...] = ()
    id_prefix: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    due_from: int | None = None
    """Inclusive."""
    due_to: int | None = None
    """Exclusive."""

    def matches(self, timer: Timer) -> bool:
        labels = timer.detail.labels
        return (
            (not self.states or timer.state in self.states)
            and timer.timer_id.startswith(self.id_prefix)
            and (self.due_from is None or timer.due_at >= self.due_from)
            and (self.due_to is None or timer.due_at < self.due_to)
            and all(labels.get(name) == value for name, value in self.labels)
        )

    @property
    def is_selective(self) -> bool:
        """Whether rows of its part of the due order have to be looked at to know whether they match."""
        return bool(self.states or self.id_prefix or self.labels)

    def part_after(self, after: Position) -> tuple[Position, Position]:
        """The part of the due order that has all matching rows behind `after`: behind the first position, and up to the
        second."""
        start = after if self.due_from is None else max(after, Position(self.due_from, ""))
        return start, END if self.due_to is None else min(END, Position(self.due_to, ""))


def look_rows(shards: int) -> int:
    """How many rows of each of so many shards a list looks through for one page. Empty ones need not be counted."""
    return max(LOOK_SHARD_ROWS, LOOK_ROWS // max(shards, 1))


def horizon_of(places: Sequence[Sequence[tuple[int, str]]], count: int) -> tuple[int, str] | None:
    """Where a page ends that has to look at rows to know whether they match. None: at the end of all.

    For each shard, `places` are its first ones in order, `count` if it has as many. A page goes no further than those
    of any shard that may have more, and no further than `LOOK_ROWS` of all of them.
    """
    ends = [of_shard[count - 1] for of_shard in places if len(of_shard) >= count]
    if sum(map(len, places)) > LOOK_ROWS:
        ends.append(sorted(chain.from_iterable(places))[LOOK_ROWS - 1])
    return min(ends, default=None)


class TimerStore(Protocol):
    """Timer rows with a due instant, in shards with a fenced owner."""

    async def time(self) -> int:
        """The database's clock, in milliseconds. For an embedded store, the machine's."""
        ...

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        """Create, change and remove rows on behalf of users: no fence, no owner needed.

        Each item is atomic. A row is found by its key, wherever its due instant has moved it, and there is
        never more than one row for a key. Returns APPLIED, STALE, UNAVAILABLE or REFUSED for each.
        """
        ...

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        """The rows as they are, None for those that do not exist or cannot be read. The caller names each of them, so
        there is no bound in bytes."""
        ...

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        """The rows of these keys that are there but cannot be read; None for all others."""
        ...

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        """At most `limit` matching rows of these shards after `after`, in due order across the shards.

        Filters apply before the limit. Only `ListPage.after` tells whether there may be more.
        """
        ...

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        """The first rows after `after` that are due at or before `until`, in due order, at most `limit`.

        Includes rows in any state, those in flight too. `next_due_at` is the due instant of the row that
        follows the page in the due order, due or not; None when there is none. Parked rows (`FOREVER`) do not count.
        Sees everything that was acknowledged before the claim of the shard's current owner.
        """
        ...

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        """The earliest due instant in each of these shards, whatever the state of the row; None where there is none.

        Parked rows (`FOREVER`) do not count. A shard that cannot be asked while others can counts as due at once
        (`START.due_at`): reading it then tells. This is what owners ask once in a while when others write, too: it
        should be cheap, one round trip for many shards where the database allows it.
        """
        ...

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        """Mark attempts as in flight, before anything is sent.

        The fence is locked, not looked at: no write under an older fence commits after a newer claim.
        STALE when the row has changed or is gone since it was loaded: it must not be sent.
        """
        ...

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        """Record how attempts ended: rows by identity and version, history in the same transaction.

        Fenced like `begin`. Repeating a finish that was applied gives STALE.
        """
        ...

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Attempt]:
        """The attempts of a timer, newest first by (started_at, attempt), below `before` when it is given."""
        ...

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        """Remove at least the oldest entries started before `older_than`, at most `limit`; returns how many."""
        ...

    async def shards(self, shard_ids: Sequence[int]) -> Sequence[Shard | None]:
        """The ownership of these shards. A shard that was never claimed has version 0 and no owner.

        None for one that cannot be reached while others can.
        """
        ...

    async def claim_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        """Take ownership: for each claim, if the stored version equals `version`, set it to version + 1 and the owner.

        Waits for, or aborts, every open fenced write of the old version before it returns. APPLIED, STALE or
        UNAVAILABLE for each.
        """
        ...

    async def release_shards(self, claims: Sequence[Shard]) -> list[Verdict]:
        """Give shards up: where version and owner are exactly these, the owner becomes empty. The version stays."""
        ...


@runtime_checkable
class NoticesWriters(Protocol):
    """What a store may offer in addition: it can tell cheaply whether anybody but this process has written.

    An instance that is alone on such a store need not look for rows that nobody announced. On a store without it
    owners always look, because a program may write timers in its own transaction and run no engine.
    """

    async def foreign_writes(self) -> int:
        """A number that changes after somebody else has committed, or this process has committed something whose caller
        had given up by then. It may change for no reason."""
        ...


@runtime_checkable
class FinishesWithRecords(Protocol):
    """What a store may offer in addition: `finish` takes items with a `record`, and writes both at once, or neither. An
    item is then also STALE if the record is not as expected.

    Without it, whoever has to say in a record how an attempt ended writes that first, and the end of the attempt then.
    """

    finishes_with_records: ClassVar[bool]
    """True."""


@runtime_checkable
class ReadsManyRecords(Protocol):
    """What a store may offer in addition: many records of any collections cost hardly more than one."""

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        """As `get_record` for each collection and key, in their order. Callers ask for at most `BATCH_LIMIT`."""
        ...


@runtime_checkable
class PurgesRecords(Protocol):
    """What a store may offer in addition, if it removes expired records only along with writes of its own."""

    async def purge_records(self, *, now: int) -> None:
        """Remove some records that have expired at `now`. It does not matter if that fails."""
        ...


@runtime_checkable
class ReadsManyShards(Protocol):
    """What a store may offer in addition: a few due rows of many shards take hardly longer than those of one."""

    async def load_due_of(
        self, places: Sequence[tuple[int, Position]], *, until: int, limit: int
    ) -> list[DuePage | None]:
        """As `load_due` for each of these shards after its position, in their order, `limit` rows of each at most.

        None for a shard that has to be read by itself: because it cannot be reached while others can, because its rows
        are large, or because none of them can be read.
        """
        ...


async def look(timers: TimerStore, key: TimerKey) -> Timer | Unreadable | None:
    """The row, even if it cannot be read: whoever wants to replace or remove it needs its version."""
    [row] = await timers.get([key])
    if row is not None:
        return row
    [damaged] = await timers.damaged([key])
    return damaged


class RecordStore(Protocol):
    """Documents `(collection, key) -> (value, version, expires_at)` with compare-and-set.

    A record whose `expires_at` is at or before `now` does not exist: it is not returned, and a put that
    expects absence replaces it like one that is not there. The store may remove it whenever it likes.
    """

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        """The record, or None."""
        ...

    async def put_record(
        self,
        collection: str,
        key: str,
        value: bytes,
        *,
        expect: int,
        now: int,
        expires_at: int | None = None,
        first: int = 1,
    ) -> Record | None:
        """Write if the current version is `expect` (0: absent). The record as written, or None if it was not.

        A new record gets the version `first`. Records of a key that come and go have no version in common if their
        creators draw it (`first_version`): then a write that was meant for one, however late, never hits another.
        """
        ...

    async def delete_record(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        """Remove if the current version is `expect`. False if it was not."""
        ...

    async def scan_records(self, collection: str, *, now: int, after: str = "", limit: int = 1000) -> list[Record]:
        """At most `limit` live records with keys after `after`, in key order (by code point); see `ends_scan`."""
        ...


def ends_scan(page: Sequence[Record], limit: int) -> bool:
    """Whether there are no records after a page: it has fewer than were asked for, and not because they are large."""
    return len(page) < limit and sum(len(record.value) for record in page) <= PAGE_BYTES


def just_before(prefix: str) -> str:
    """A key before all those that begin like this, and after as many others as possible."""
    if not prefix:
        return ""
    last = prefix[-1]
    return prefix[:-1] + (f"{chr(ord(last) - 1)}~" if " " < last <= "~" else "")


async def all_records(
    records: RecordStore, collection: str, now: Callable[[], int], *, after: str = "", limit: int = BATCH_LIMIT
) -> AsyncIterator[Record]:
    """All live records with keys after `after`, in key order: read in pages, each as of `now` at that time."""
    while True:
        page = await records.scan_records(collection, now=now(), after=after, limit=limit)
        for record in page:
            yield record
        if ends_scan(page, limit):
            return
        after = page[-1].key


async def timer_pages(
    timers: TimerStore, shards: Sequence[int], where: TimerFilter, *, limit: int = BATCH_LIMIT
) -> AsyncIterator[list[Timer]]:
    """All matching rows of these shards in due order, in pages, none of which is empty."""
    after: Position | None = START
    while after is not None:
        page, after = await timers.list_timers(shards, where, after=after, limit=limit)
        if page:
            yield page


class Store(TimerStore, RecordStore, Protocol):
    """One database with both contracts. Opened by `open`, and closed by its own `close`."""

    async def open(self) -> None:
        """Connect and bring the schema up to date. Safe when several processes start at once."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of the database. Nothing may be called afterwards."""
        ...
