"""What is written down while a history happens: everything that the oracle knows about it.

Both the deterministic simulation and the torture of real processes write these events. An operation of a client is
`Invoke`, and then *one* of `Ok` (acknowledged), `Fail` (certainly not done) and `Info` (nobody knows: it may take
effect later, or never). Receivers write `Call` and `Reply`, faults `Fault`, and at the end somebody looks into the
store and writes `Left`. The simulation also sees what happens inside: `Commit`, `Sent`.

- `at` is in microseconds of the one clock of the run: simulated time, or the machine's monotonic clock. Events are in
  the order in which they happened; where two have the same `at`, the order of the journal decides.
- Fields ending in `_ms` are milliseconds since the epoch by the *store's* clock, as the API tells them.
- `D` in a comment is a delivery id. A timer's id may be reused and does not say which timer is meant; D does.
- A *mark* stands for a content: whatever tells one payload or result from another.

One line of JSON per event (`JournalFile`, `read_journal`), so that a history can be kept, read and judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec import Struct

from mainspring.jobs.messages import RunView
from mainspring.testing.oracle.parts import (
    Asked,
    Bound,
    Entry,
    Fetched,
    JobTerms,
    Key,
    Owner,
    Row,
    Service,
    View,
)

__all__ = [
    "AnyEvent",
    "Asked",
    "Bound",
    "Call",
    "Commit",
    "Effect",
    "Entry",
    "Event",
    "Fail",
    "Fault",
    "Fetched",
    "Held",
    "Info",
    "Invoke",
    "JobTerms",
    "Journal",
    "JournalFile",
    "Key",
    "Left",
    "Ok",
    "Owner",
    "Reached",
    "Reply",
    "Row",
    "Sent",
    "Service",
    "View",
    "read_journal",
    "write_journal",
]


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, tag_field="event"):
    """One line of the journal."""

    at: int


# --- what clients ask and are told ------------------------------------------------------------------------


class Invoke(Event, frozen=True, kw_only=True):
    """A request leaves a client.

    Verbs of timers: create, create-batch, update, delete, run-now, park, resume, get, list, bulk-delete, bulk-park,
    bulk-resume, transaction (a create committed by a foreign transaction). Of jobs: create, update, delete, pause,
    resume, trigger, backfill, rerun, cancel, get, foreign-write. Of fetches: create, cancel, wait, get. Of idempotency:
    call, forget. Of locks: acquire, release.
    """

    op: str
    """Names the operation; unique in a journal."""
    client: str
    service: Service = "timers"
    verb: str
    items: tuple[Asked, ...] = ()
    """One for each id that is named. A bulk verb names those that it can select; none means that it may select all."""
    node: str = ""
    """The instance that was asked, if one was chosen."""


class Ok(Event, frozen=True, kw_only=True):
    """An answer that says it was done. Items of a batch that failed have no view."""

    op: str
    views: tuple[View, ...] = ()
    changed: int | None = None
    """What a bulk verb says it changed."""


class Fail(Event, frozen=True, kw_only=True):
    """An answer that says it was not done, and was certainly not."""

    op: str
    code: str
    status: int = 0


class Info(Event, frozen=True, kw_only=True):
    """No answer, or one that leaves it open. It may take effect at any later instant, or never."""

    op: str
    reason: str = ""


# --- what receivers see -----------------------------------------------------------------------------------


class Sent(Event, frozen=True, kw_only=True):
    """A call leaves an instance. Known in the simulation only."""

    node: str
    delivery_id: str
    attempt: int
    id: str = ""
    service: Service = "timers"
    shard: int | None = None


class Call(Event, frozen=True, kw_only=True):
    """A call reaches its receiver; written before it is answered."""

    service: Service = "timers"
    host: str
    delivery_id: str
    attempt: int
    id: str
    generation: int = 0
    mark: str = ""
    fence: int | None = None
    node: str = ""
    wall_ms: int
    """The store's clock at this instant."""
    due_ms: int | None = None
    """`Mainspring-Scheduled-At`, as the call says it."""
    instant_ms: int | None = None
    """Jobs: the instant of the calendar for which it is."""
    launch_id: str = ""
    """Jobs."""


class Reply(Event, frozen=True, kw_only=True):
    """What the receiver did with a call."""

    service: Service = "timers"
    delivery_id: str
    attempt: int
    accepted: bool
    """It acted and wants no repeat. With a 2xx it also said so; without one it acted and cut the line."""
    status: int | None = None
    """None: it said nothing."""
    next_ms: int | None = None
    """`nextExecuteAt` of its answer."""
    mark: str | None = None
    """Of the payload that its answer puts in place of the old one; of a fetch's result."""
    retry_after_ms: int = 0


class Effect(Event, frozen=True, kw_only=True):
    """Work that must not be done twice was done: `token` names the execution, `mark` its result."""

    service: Service = "idempotency"
    key: str
    token: str
    client: str = ""
    mark: str = ""
    stage: Literal["began", "done", "failed", "cancelled"] = "done"


class Held(Event, frozen=True, kw_only=True):
    """A holder was told that it holds a lock from `at` on, and believed it until `until` (None: to the end)."""

    lock: str
    client: str
    fence: int | None = None
    until: int | None = None


# --- what happens inside ----------------------------------------------------------------------------------


class Commit(Event, frozen=True, kw_only=True):
    """A write that took effect, at the instant at which it did. Known in the simulation only.

    `write` is a user's, `begin` and `finish` are the engine's; `claim`, `release` and `renew` are of ownership;
    `put` and `forget` are of records. What was refused (STALE, FENCED) changed nothing and is no commit. A finish
    whose row is no longer its attempt's writes history alone: `before` and `after` are then None.
    """

    node: str
    """Whose write; empty for a foreign transaction."""
    verb: Literal["write", "begin", "finish", "claim", "release", "renew", "put", "forget"]
    service: Service = "timers"
    """Whose row it is: users' timers, or the rows that a service keeps for itself."""
    shard: int | None = None
    id: str = ""
    """The timer's id; for a record `collection/key`."""
    before: int | None = None
    """The row's version before; 0: there was none. For a claim the shard's version."""
    after: int | None = None
    """And after; 0: there is none left."""
    fence: int | None = None
    """Under which it was written: begin, finish."""
    shard_version: int | None = None
    """That of the shard at this instant."""
    delivery_id: str = ""
    """D of the row that was written, begun or removed; for a finish, the D whose attempt has ended."""
    delivery_before: str = ""
    """D of the row before it, if there was one. It is another one where a write starts a new delivery."""
    delivery_after: str = ""
    """finish: the D of the row after it, if there is one. It is another one after a reschedule."""
    state: str = ""
    """After."""
    attempts: int = 0
    """After; for a finish, the attempt that ended."""
    generation: int = 0
    due_ms: int | None = None
    """After: the next instant at which something has to be done."""
    execute_ms: int | None = None
    """After: what the owner asked for."""
    delivery: str = ""
    mark: str = ""
    host: str = ""
    """Where it goes, if that is told."""
    next: str = ""
    """finish: done, retry, rescheduled, parked, dropped, superseded."""
    outcome: str = ""
    """finish: succeeded, failed, unknown."""
    status: int | None = None
    """finish: what the receiver answered."""
    recorded: bool = False
    """finish: an entry was added to the history."""
    asked_at: int | None = None
    """When the writer asked for it: begin, renew. A lease holds for its seconds from the instant at which its last
    committed renewal was asked for."""
    op: str = ""
    """The client's operation that it was for, if it is known."""
    owner: str = ""
    """claim, release: the owner after."""
    job: JobTerms | None = None
    """put: the definition of a job as it was written; None: another record, or one that nobody understands."""
    last_run_ms: int | None = None
    """put: the `lastRun` in the record of a job, if it has one."""


class Fault(Event, frozen=True, kw_only=True):
    """Something was made to go wrong from `at` to `until`."""

    kind: Literal[
        "kill", "pause", "stop", "restart", "join", "store", "peers", "network", "clock", "store-clock", "foreign-lock"
    ]
    """kill, pause, stop: a process. store: its calls. peers: instances do not hear each other. network: calls to
    receivers are cut. clock: an instance's. store-clock: the database's. foreign-lock: somebody's open transaction.
    restart and join harm nobody; they are there for the reader."""
    until: int | None = None
    """None: never healed; for a kill, a stop or a step of a clock, at once: what follows from it is not the fault."""
    node: str | None = None
    """None: all of them."""
    shard: int | None = None
    verb: str | None = None
    host: str | None = None
    id: str | None = None
    """foreign-lock: the row."""
    mode: str = ""
    """store: refuse, lose, hang, late, slow."""


class Reached(Event, frozen=True, kw_only=True):
    """Something happened that has to happen sometimes: the simulation has a list of it."""

    what: str


# --- what is left at the end ------------------------------------------------------------------------------


class Left(Event, frozen=True, kw_only=True):
    """What is there when everything has come to rest, or when the run gave up waiting for that."""

    wall_ms: int
    """The store's clock."""
    healed_at: int = 0
    """When the faults were ended, in microseconds of the run, except those whose `until` is later."""
    timers: bool = True
    """Whether rows, history and owners were read; jobs, fetches and keys likewise."""
    jobs: bool = False
    fetches: bool = False
    idempotency: bool = False
    alive: tuple[str, ...] = ()
    """The instances that run, and reach the store. Where there are none, nobody has to own or send anything."""
    rows: tuple[Row, ...] = ()
    history: tuple[Entry, ...] = ()
    owners: tuple[Owner, ...] = ()
    bounds: tuple[Bound, ...] = ()
    runs: tuple[RunView, ...] = ()
    """The ledgers of all jobs, as the API tells them."""
    fetched: tuple[Fetched, ...] = ()
    keys: tuple[Key, ...] = ()


AnyEvent = Invoke | Ok | Fail | Info | Sent | Call | Reply | Effect | Held | Commit | Fault | Reached | Left
Journal = Sequence[AnyEvent]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEvent).decode


class JournalFile:
    """Keeps the events and writes each to a file at once. A context manager."""

    def __init__(self, path: Path) -> None:
        self.events: list[AnyEvent] = []
        self._path = path

    def __enter__(self) -> Self:
        self._file = self._path.open("ab", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, event: AnyEvent) -> None:
        self.events.append(event)
        self._file.write(_encode(event) + b"\n")


def write_journal(path: Path, events: Iterable[AnyEvent]) -> None:
    with path.open("wb") as file:
        file.writelines(_encode(event) + b"\n" for event in events)


def read_journal(path: Path) -> list[AnyEvent]:
    with path.open("rb") as file:
        return [_decode(line) for line in file]
