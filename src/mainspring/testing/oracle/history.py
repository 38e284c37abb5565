"""A journal, sorted and joined: what the rules look things up in.

*Place* is the position of an event in the order of time; rules compare places, and use instants for durations only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from mainspring.model import RetryPolicy
from mainspring.testing.oracle.journal import (
    AnyEvent,
    Asked,
    Call,
    Commit,
    Effect,
    Entry,
    Event,
    Fail,
    Fault,
    Held,
    Info,
    Invoke,
    Left,
    Ok,
    Reply,
    Row,
    Sent,
    View,
)
from mainspring.testing.oracle.world import World

E = TypeVar("E", bound=Event)

NEVER: Final = 2**62
HARMLESS: Final = frozenset({"clock", "join", "restart"})
"""They excuse nothing: a wall clock moves nothing, and one more instance only makes shards move."""
MEMBERSHIP: Final = frozenset({"join", "restart", "stop", "kill", "pause", "peers"})
"""What makes shards move between instances that are well."""

STARTS: Final = frozenset({"create", "create-batch", "update", "run-now", "transaction"})
"""Verbs that start a new delivery, an update only when it names a time."""
REMOVES: Final = frozenset({"delete", "bulk-delete"})
RESUMES: Final = frozenset({"resume", "bulk-resume"})
PARKS: Final = frozenset({"park", "bulk-park"})


class Violation(NamedTuple):
    """A promise that was broken: which rule, for which id, where in the journal."""

    rule: str
    id: str
    detail: str
    place: int = NEVER
    """The place of the event that broke it, or one near it."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.id}: {self.detail}"


class Finding(NamedTuple):
    """What a rule says: `judge` adds which rule it was."""

    id: str
    detail: str
    place: int = NEVER


class At(NamedTuple, Generic[E]):
    """An event and its place."""

    place: int
    event: E

    @property
    def at(self) -> int:
        return self.event.at


@dataclass(slots=True)
class Operation:
    """A request with what became of it."""

    invoke: Invoke
    place: int
    answer: Ok | Fail | Info | None = None
    answered: int = NEVER
    """The place of the answer; an operation of unknown outcome may take effect at any later place."""

    @property
    def is_ok(self) -> bool:
        return isinstance(self.answer, Ok)

    @property
    def may_have_acted(self) -> bool:
        return not isinstance(self.answer, Fail)

    @property
    def until(self) -> int:
        """The last place at which it can have taken effect."""
        return self.answered if isinstance(self.answer, Ok) else NEVER

    @property
    def verb(self) -> str:
        return self.invoke.verb

    @property
    def views(self) -> Sequence[View]:
        return self.answer.views if isinstance(self.answer, Ok) else ()

    def asked(self, id: str) -> Iterator[Asked]:
        return (item for item in self.invoke.items if item.id == id)

    def starts(self, id: str) -> bool:
        """Whether it gives this id a new delivery."""
        if self.verb == "update":
            return any(item.due_ms is not None for item in self.asked(id))
        return self.verb in STARTS

    def __str__(self) -> str:
        return f"{self.verb} {self.invoke.op} of {self.invoke.client}"


@dataclass(slots=True)
class DeliveryHistory:
    """Everything that is known about one D, each list in the order of time."""

    delivery_id: str
    id: str = ""
    told: list[tuple[Operation, View]] = field(default_factory=list)
    """Acknowledgements that mention it."""
    calls: list[At[Call]] = field(default_factory=list)
    replies: list[At[Reply]] = field(default_factory=list)
    sent: list[At[Sent]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    begins: list[At[Commit]] = field(default_factory=list)
    finishes: list[At[Commit]] = field(default_factory=list)
    commits: list[At[Commit]] = field(default_factory=list)
    """Commits of its row: those that wrote it, changed it, or put an end to it."""

    def begin_of(self, call: At[Call]) -> At[Commit] | None:
        """The newest begin before a call that can be its own."""
        return next(
            (
                begin
                for begin in reversed(self.begins)
                if begin.place < call.place and begin.event.attempts == call.event.attempt
            ),
            None,
        )

    def finish_of(self, begin: At[Commit]) -> At[Commit] | None:
        """How an attempt ended, as the store has it."""
        return next(
            (f for f in self.finishes if f.place > begin.place and f.event.attempts == begin.event.attempts), None
        )

    def reply_to(self, call: At[Call]) -> At[Reply] | None:
        return next((r for r in self.replies if r.place > call.place and r.event.attempt == call.event.attempt), None)

    @property
    def due_ms(self) -> int | None:
        """When it may be sent. A delivery has one such instant: another time is another delivery."""
        for _, view in self.told:
            if view.due_ms is not None:
                return view.due_ms
        for _, commit in self.commits:
            if commit.execute_ms is not None:
                return commit.execute_ms
        return None


class History:
    """The journal of one service's rows (timers), and the operations of all."""

    def __init__(self, journal: Iterable[AnyEvent], world: World) -> None:
        self.world = world
        self.events: list[AnyEvent] = sorted(journal, key=lambda event: event.at)
        self.operations: dict[str, Operation] = {}
        self.deliveries: dict[str, DeliveryHistory] = {}
        self.by_id: dict[str, list[Operation]] = defaultdict(list)
        """What users asked of each timer id, in the order of asking; without reads."""
        self.wide: list[Operation] = []
        """Bulk verbs that may have acted on any id."""
        self.commits: list[At[Commit]] = []
        self.rows: dict[str, list[At[Commit]]] = defaultdict(list)
        """The commits of each row of a user's timer, in order."""
        self.faults: list[Fault] = []
        self.effects: list[At[Effect]] = []
        self.held: list[At[Held]] = []
        self.calls: list[At[Call]] = []
        self.replies: list[At[Reply]] = []
        self.sent: list[At[Sent]] = []
        self.left: Left | None = None
        self.rows_left: dict[str, Row] = {}
        for place, event in enumerate(self.events):
            self._take(place, event)
        for operation in self.operations.values():
            self._index(operation)

    def _take(self, place: int, event: AnyEvent) -> None:
        match event:
            case Invoke():
                self.operations[event.op] = Operation(event, place)
            case Ok() | Fail() | Info():
                operation = self.operations.get(event.op)
                if operation is not None:
                    operation.answer, operation.answered = event, place
            case Call() | Reply() | Sent():
                self._take_sent(place, event)
            case Commit():
                self._take_commit(At(place, event))
            case Fault():
                self.faults.append(event)
            case Effect():
                self.effects.append(At(place, event))
            case Held():
                self.held.append(At(place, event))
            case Left():
                self._take_left(event)
            case _:
                pass

    def _take_sent(self, place: int, event: Call | Reply | Sent) -> None:
        of_timer = event.service == "timers"
        delivery = self._delivery(event.delivery_id) if of_timer else DeliveryHistory(event.delivery_id)
        if not isinstance(event, Reply):
            delivery.id = delivery.id or event.id
        match event:
            case Call():
                self.calls.append(At(place, event))
                delivery.calls.append(At(place, event))
            case Reply():
                self.replies.append(At(place, event))
                delivery.replies.append(At(place, event))
            case Sent():
                self.sent.append(At(place, event))
                delivery.sent.append(At(place, event))

    def _take_commit(self, commit: At[Commit]) -> None:
        self.commits.append(commit)
        event = commit.event
        if event.service != "timers" or event.verb not in ("write", "begin", "finish"):
            return
        delivery = self._delivery(event.delivery_id, event.id)
        if event.verb == "begin":
            delivery.begins.append(commit)
        if event.verb == "finish":
            delivery.finishes.append(commit)
        if event.after is not None:
            self.rows[event.id].append(commit)
            for touched in dict.fromkeys((event.delivery_id, event.delivery_before, event.delivery_after)):
                if touched:
                    self._delivery(touched, event.id).commits.append(commit)

    def _take_left(self, left: Left) -> None:
        self.left = left
        self.rows_left = {row.id: row for row in left.rows}
        for entry in left.history:
            self._delivery(entry.delivery_id, entry.id).entries.append(entry)

    def _index(self, operation: Operation) -> None:
        if operation.invoke.service != "timers":
            return
        if operation.verb not in ("get", "list"):
            if operation.verb.startswith("bulk-") and not operation.invoke.items:
                self.wide.append(operation)
            for id in dict.fromkeys(item.id for item in operation.invoke.items):
                self.by_id[id].append(operation)
        for view in operation.views:
            if view.delivery_id:
                self._delivery(view.delivery_id, view.id).told.append((operation, view))

    def _delivery(self, delivery_id: str, id: str = "") -> DeliveryHistory:
        delivery = self.deliveries.get(delivery_id)
        if delivery is None:
            delivery = self.deliveries[delivery_id] = DeliveryHistory(delivery_id)
        if id and not delivery.id:
            delivery.id = id
        return delivery

    # --- questions ----------------------------------------------------------------------------------------

    @property
    def timers(self) -> Iterator[DeliveryHistory]:
        """Every delivery of a timer, by its id: D as `""` is of no delivery."""
        return (delivery for delivery_id, delivery in self.deliveries.items() if delivery_id)

    def acting(self, id: str) -> Iterator[Operation]:
        """What may have changed the row of this id."""
        for operation in (*self.by_id.get(id, ()), *self.wide):
            if operation.may_have_acted:
                yield operation

    def resumes(self, id: str, since: int = -1, until: int = NEVER) -> int:
        """How often its attempts may have started again for the same delivery, between two places."""
        return sum(
            operation.verb in RESUMES and operation.place < until and operation.until > since
            for operation in self.acting(id)
        )

    def policies(self, id: str) -> list[RetryPolicy]:
        """Every policy that may have been in force for this id. A request that leaves it out means the default."""
        found: list[RetryPolicy] = []
        for operation in self.acting(id):
            for item in operation.asked(id):
                if item.policy is not None:
                    found.append(item.policy)
                elif operation.verb in ("create", "create-batch", "transaction"):
                    found.append(self.world.policy)
        return found or [self.world.policy]

    def timeout_us(self, id: str) -> int:
        """The shortest timeout of a call that may have been in force."""
        asked = [item.timeout_ms for operation in self.acting(id) for item in operation.asked(id)]
        return min((self.world.call_timeout_ms if ms is None else ms for ms in asked), default=NEVER // 1000) * 1000

    def at_most_once(self, delivery: DeliveryHistory) -> bool:
        """Whether it certainly was, all the time: nobody can have changed that since it began."""
        asked = [
            item.delivery
            for operation in self.acting(delivery.id)
            for item in operation.asked(delivery.id)
            if item.delivery is not None or operation.verb in ("create", "create-batch", "transaction")
        ]
        return bool(asked) and all(choice == "at-most-once" for choice in asked)

    def at_of(self, wall_ms: int) -> int:
        """An instant of the store's clock in microseconds of the run. For what comes after the last step
        of that clock."""
        assert self.left is not None
        return self.left.at + (wall_ms - self.left.wall_ms) * 1000

    @property
    def lease_us(self) -> int:
        return round(self.world.lease_seconds * 1_000_000)

    def steps(self) -> bool:
        """Whether the store's clock was moved: then its milliseconds cannot be mapped to those of the run."""
        return any(fault.kind == "store-clock" for fault in self.faults)

    def met(
        self,
        since: int,
        until: int,
        *,
        nodes: Sequence[str] = (),
        shard: int | None = None,
        id: str | None = None,
        host: str | None = None,
        kinds: frozenset[str] | None = None,
    ) -> bool:
        """Whether a fault between two instants can have hit one of these instances, this shard, this row.

        What is not named may be any. A fault that a lease outlives still has its effect a lease later.
        """
        return any(
            (fault.kind in kinds if kinds is not None else fault.kind not in HARMLESS)
            and fault.at <= until
            and self._ended(fault) + self.lease_us >= since
            and (not nodes or fault.node is None or fault.node in nodes)
            and (shard is None or fault.shard is None or fault.shard == shard)
            and (fault.id is None or id is None or fault.id == id)
            and (host is None or fault.host is None or fault.host == host)
            for fault in self.faults
        )

    @staticmethod
    def _ended(fault: Fault) -> int:
        if fault.until is not None:
            return fault.until
        return fault.at if fault.kind in ("kill", "stop", "join", "restart", "clock", "store-clock") else NEVER
