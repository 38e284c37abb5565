"""What the engine asks of the outside: carry one timer, and say how it ended.

`Ending` is a decision without a row: `conclude` applies it to the row as it stands, so that a change made by a
user while the call was in flight is neither lost nor overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mainspring.model import FOREVER, Attempt, LastOutcome, Result, State, Timer
from mainspring.store import Finish, Put, RecordPut, Remove

Next = Literal["done", "retry", "rescheduled", "parked", "dropped"]


class Lane(Struct, frozen=True):
    """Timers of one lane share a limit of calls in flight, and the fate of their destination."""

    name: str
    limit: int
    namespace: str
    site: str
    """What the lanes of one site take counts together, and likewise in a namespace."""
    room: Callable[[], int] | None = None
    """For a lane whose limit moves: how many more calls there is room for. Call `Dispatcher.pump` when it grows."""
    taking: Callable[[int], None] | None = None
    """For lanes that share their room: called for each slot that is taken (1) or given back (-1)."""
    calls_nobody: bool = False
    """For a lane that asks only the store: there is no destination that could be doubted."""


class Ending(Struct, frozen=True, kw_only=True):
    """How an attempt ended and what follows from it."""

    outcome: Result
    next: Next
    next_at: int | None = None
    status: int | None = None
    detail: str = ""
    answer_head: str = ""
    started_at: int
    duration_ms: int = 0
    payload: str | UnsetType | None = UNSET
    """The receiver's replacement, on a reschedule."""
    delivery_id: str = ""
    """The id of the next delivery, on a reschedule: it is not a repeat of this one."""
    hasty: int = 0
    """How often in a row the receiver has asked for a moment that had passed, on a reschedule."""
    labels: dict[str, str] | UnsetType = UNSET
    """The row's labels from then on, on a reschedule."""
    callback_url: str | UnsetType = UNSET
    """Where the row goes from then on: into the lane of this URL."""
    is_attempt: bool = True
    """Whether it counts as an attempt. If not, no call was made: the row has as many attempts as before."""
    reachable: bool | None = True
    """Whether the destination answered at all, which its circuit goes by. None: it was not asked."""
    kept: bool = True
    """Whether it enters the history. Services that keep their own account of what happened leave it out."""
    write: Callable[[], Coroutine[Any, Any, Ending]] | None = None
    """What the carrier still has to write before the row is: done after the call, when its slot is free again."""
    record: RecordPut | None = None
    """The same as one record, for a store that writes it with the row. `write` is for all others, and for a record or
    a row that is not as expected."""
    recorded: Callable[[], None] | None = None
    """Told that this was done."""


class Carrier(Protocol):
    """Does the calls. Implemented above the kernel."""

    def lane(self, timer: Timer) -> Lane:
        """Which limit this timer falls under."""
        ...

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        """An ending for a timer that must not be attempted at all now, else None."""
        ...

    async def carry(self, timer: Timer) -> Ending:
        """Make the attempt that was begun. Bounded in time by the timer's own deadline; does not raise."""
        ...

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        """What becomes of an attempt in flight about which nothing more will be known."""
        ...


Carry = Callable[[], Coroutine[Any, Any, Ending]]


@runtime_checkable
class ReadsAhead(Protocol):
    """What a carrier may offer in addition: it looks up at once what the attempts of many timers need."""

    def reads_ahead(self, timer: Timer) -> bool:
        """Whether it does for this one."""
        ...

    async def read_ahead(self, timers: Sequence[Timer]) -> Sequence[Carry]:
        """For timers of one namespace that were begun: how each is carried, instead of by `carry`. Does not raise."""
        ...


@runtime_checkable
class TellsFailures(Protocol):
    """What a carrier may offer in addition: it writes into the log what did not end well."""

    def tell_failure(self, timer: Timer, ending: Ending) -> None:
        """An attempt has ended with another outcome than success, or its timer is parked. Called once for each."""
        ...


class Carriers:
    """One carrier for each namespace of a service, and one for all that users made."""

    def __init__(self, users: Carrier, services: Mapping[str, Carrier]) -> None:
        self._users = users
        self._services = services
        self._ahead = {name: carrier for name, carrier in services.items() if isinstance(carrier, ReadsAhead)}

    def reads_ahead(self, timer: Timer) -> bool:
        ahead = self._ahead.get(timer.namespace)
        return ahead is not None and ahead.reads_ahead(timer)

    async def read_ahead(self, timers: Sequence[Timer]) -> Sequence[Carry]:
        return await self._ahead[timers[0].namespace].read_ahead(timers)

    def lane(self, timer: Timer) -> Lane:
        return self._services.get(timer.namespace, self._users).lane(timer)

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        return self._services.get(timer.namespace, self._users).refusal(timer, now)

    async def carry(self, timer: Timer) -> Ending:
        return await self._services.get(timer.namespace, self._users).carry(timer)

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        return self._services.get(timer.namespace, self._users).lost(timer, now, reason)

    def tell_failure(self, timer: Timer, ending: Ending) -> None:
        carrier = self._services.get(timer.namespace, self._users)
        if isinstance(carrier, TellsFailures):
            carrier.tell_failure(timer, ending)


def conclude(begun: Timer, current: Timer | None, ending: Ending, fence: int) -> Finish:
    """The fenced write that records an ending.

    `begun` is the row as it was sent, `current` the row as it stands (the same, unless a user changed it since).
    A row that is gone or carries another delivery is no longer this attempt's: only history is written.
    """
    superseded = current is None or current.detail.delivery_id != begun.detail.delivery_id
    next_step: Next | Literal["superseded"] = "superseded" if superseded else ending.next
    attempt = _attempt(begun, ending, next_step) if ending.kept else None
    if superseded or current is None:
        return Finish(begun.key, fence, None, attempt, ending.record)
    if ending.next in ("done", "dropped"):
        return Finish(begun.key, fence, Remove(begun.key, current.version), attempt, ending.record)
    if begun.state is State.RUNNING and not ending.is_attempt:
        # If somebody resumed it meanwhile, counting has started again.
        current = replace(current, attempts=max(0, current.attempts - 1))
    return Finish(begun.key, fence, Put(_moved(current, ending), current.version), attempt, ending.record)


def conclude_small(begun: Timer, current: Timer | None, ending: Ending, fence: int) -> Finish:
    """The same in few words, for a row that the database could not hold with more.

    A row that would go on is parked as it was, so that it needs no more room than it had.
    """
    goes_on = ending.next in ("retry", "rescheduled", "parked")
    small = replace(
        ending,
        next="parked" if goes_on else ending.next,
        next_at=None,
        detail="Its outcome made the timer larger than the database can hold." if goes_on else "",
        answer_head="",
    )
    return conclude(begun, current, small, fence)


def put_aside(timer: Timer, now: int, reason: str) -> Ending:
    """An ending for a timer that can never be attempted."""
    return Ending(outcome=Result.FAILED, next="parked", detail=reason, started_at=now, reachable=None, is_attempt=False)


def _attempt(begun: Timer, ending: Ending, next_step: Next | Literal["superseded"]) -> Attempt:
    return Attempt(
        attempt=begun.attempts,
        generation=begun.generation,
        delivery_id=begun.detail.delivery_id,
        scheduled_at=begun.detail.execute_at,
        started_at=ending.started_at,
        duration_ms=ending.duration_ms,
        outcome=ending.outcome,
        status=ending.status,
        detail=ending.detail,
        answer_head=ending.answer_head,
        next=next_step,
        next_at=None if next_step == "superseded" else ending.next_at,
    )


def _moved(timer: Timer, ending: Ending) -> Timer:
    now = ending.started_at + ending.duration_ms
    last = LastOutcome(
        outcome=ending.outcome,
        at=now,
        status=ending.status,
        duration_ms=ending.duration_ms if ending.is_attempt else None,
        detail=ending.detail,
    )
    first = timer.detail.first_attempt_at
    if first is None and ending.is_attempt:
        first = ending.started_at
    detail = replace(timer.detail, last_outcome=last, first_attempt_at=first, updated_at=now)
    if ending.callback_url is not UNSET:
        detail = replace(detail, callback_url=ending.callback_url)
    if ending.next == "rescheduled":
        due = ending.next_at if ending.next_at is not None else now
        parked = timer.state is State.PARKED  # by a user, while the call was in flight: it waits until it is resumed
        return replace(
            timer,
            state=State.PARKED if parked else State.SCHEDULED,
            due_at=FOREVER if parked else max(due, now),
            attempts=0,
            generation=timer.generation + 1,
            payload=timer.payload if ending.payload is UNSET else ending.payload,
            detail=replace(
                detail,
                execute_at=due,
                delivery_id=ending.delivery_id,
                labels=detail.labels if ending.labels is UNSET else ending.labels,
                first_attempt_at=None,
                hasty=ending.hasty,
            ),
        )
    if ending.next == "parked" or timer.state is State.PARKED or ending.next_at is None:
        # A user who parked the timer while it was in flight keeps it parked.
        return replace(timer, state=State.PARKED, due_at=FOREVER, detail=detail)
    state = State.RETRYING if timer.attempts else State.SCHEDULED
    return replace(timer, state=state, due_at=ending.next_at, detail=detail)
