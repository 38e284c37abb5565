"""H, U: the history tells of every attempt once, and says "unknown" only where nobody can know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mainspring.testing.oracle.history import MEMBERSHIP, NEVER, At, DeliveryHistory, Finding, History
from mainspring.testing.oracle.journal import Commit, Entry


def history_entries(history: History) -> Iterator[Finding]:
    """H. One entry for each attempt that was begun.

    With commits: between a begin and the next begin of the same D there is one recorded end of that attempt. There may
    be none when a user replaced or removed the row meanwhile, so that nobody will look at it again, and a fault or a
    new owner took it from the instance that made the call.

    Without: no two entries for one attempt of a D, and none missing for a call, unless a user changed the row.
    A timer that is not sent because its destination is gone is written down under the number of its last attempt.
    """
    if history.world.commits:
        for delivery in history.timers:
            yield from _ends_of_begins(history, delivery)
    elif history.left is not None and history.left.timers:
        for delivery in history.timers:
            yield from _entries(history, delivery)


def _ends_of_begins(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    for position, begin in enumerate(delivery.begins):
        later = delivery.begins[position + 1] if position + 1 < len(delivery.begins) else None
        until = later.place if later is not None else NEVER
        recorded = [
            finish
            for finish in delivery.finishes
            if begin.place < finish.place < until
            and finish.event.attempts == begin.event.attempts
            and finish.event.recorded
        ]
        # The end of the attempt itself may look like a refusal: nobody listened. What follows it may be one.
        recorded = recorded[:1] + [finish for finish in recorded[1:] if not _is_refusal(finish.event)]
        # An entry that is written again word for word is the same entry: stores keep one.
        recorded = [finish for number, finish in enumerate(recorded) if not _is_repeat(finish.event, recorded[:number])]
        what = f"attempt {begin.event.attempts} of D={delivery.delivery_id}"
        if len(recorded) > 1:
            yield Finding(delivery.id, f"{what} has {len(recorded)} entries", recorded[1].place)
        elif not recorded and history.left is not None and not _may_be_missing(history, delivery, begin, until):
            yield Finding(delivery.id, f"{what} has no entry", begin.place)


def _is_repeat(finish: Commit, before: list[At[Commit]]) -> bool:
    """A history-only write that says what its instance has said before."""
    said = (finish.node, finish.outcome, finish.next, finish.status)
    return finish.after is None and any(
        (event.node, event.outcome, event.next, event.status) == said for _, event in before
    )


def _is_refusal(finish: Commit) -> bool:
    """An attempt that was not made, because the destination is gone: nothing was begun for it."""
    return finish.outcome == "failed" and finish.next == "parked" and finish.status is None


def _may_be_missing(history: History, delivery: DeliveryHistory, begin: At[Commit], until: int) -> bool:
    row = history.rows_left.get(delivery.id)
    if until == NEVER and row is not None and row.delivery_id == delivery.delivery_id and row.state == "running":
        return True  # whether it should still be so is a question of time: Live
    changed = any(commit.event.verb == "write" and begin.place < commit.place < until for commit in delivery.commits)
    event = begin.event
    if not changed:
        return False
    since = event.asked_at if event.asked_at is not None else event.at
    return history.met(since, NEVER, nodes=(event.node,), shard=event.shard, id=delivery.id) or any(
        place > begin.place and commit.verb in ("claim", "release") and commit.shard == event.shard
        for place, commit in history.commits
    )


def _entries(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    end = len(history.events)
    if not history.resumes(delivery.id):
        counted = Counter(entry.attempt for entry in delivery.entries if not _is_refused(entry))
        for attempt, count in counted.items():
            if count > 1:
                yield Finding(delivery.id, f"attempt {attempt} of D={delivery.delivery_id} has {count} entries", end)
    if any(
        operation.verb not in ("create", "create-batch", "transaction") for operation in history.acting(delivery.id)
    ):
        return
    if sum(operation.starts(delivery.id) for operation in history.acting(delivery.id)) > 1:
        return
    told = {entry.attempt for entry in delivery.entries}
    row = history.rows_left.get(delivery.id)
    in_flight = row.attempts if row is not None and row.state == "running" else 0
    assert history.left is not None
    for place, call in delivery.calls:
        # What is called while the end is looked at may be recorded after that look.
        if call.at < history.left.at and call.attempt not in told and call.attempt != in_flight:
            yield Finding(delivery.id, f"attempt {call.attempt} of D={delivery.delivery_id} has no entry", place)


def _is_refused(entry: Entry) -> bool:
    return entry.outcome == "failed" and entry.next == "parked" and entry.status is None


def groundless(history: History) -> Iterator[Finding]:
    """U. An attempt is recorded as unknown only if its call left, or a fault hit its instance or *its* shard between
    the begin and the record, or shards were moving and the instance itself gave up waiting for it.

    Without commits: or any fault at all since it was due.
    """
    for delivery in history.timers:
        if history.world.commits:
            for finish in delivery.finishes:
                if finish.event.outcome == "unknown" and not _has_ground(history, delivery, finish):
                    yield _groundless(delivery, finish.event.attempts, finish.place)
        elif history.left is not None:
            for entry in delivery.entries:
                if entry.outcome == "unknown" and not _may_have_ground(history, delivery, entry):
                    yield _groundless(delivery, entry.attempt, len(history.events))


def _groundless(delivery: DeliveryHistory, attempt: int, place: int) -> Finding:
    return Finding(
        delivery.id,
        f"attempt {attempt} of D={delivery.delivery_id} is unknown; it never left and nothing failed",
        place,
    )


def _has_ground(history: History, delivery: DeliveryHistory, finish: At[Commit]) -> bool:
    begin = next(
        (b for b in reversed(delivery.begins) if b.place < finish.place and b.event.attempts == finish.event.attempts),
        None,
    )
    if begin is None:
        return True  # not begun at all: that is another rule's business
    attempt = finish.event.attempts
    if any(begin.place < sent.place and sent.event.attempt == attempt for sent in delivery.sent):
        return True
    if any(begin.place < call.place and call.event.attempt == attempt for call in delivery.calls):
        return True
    since = begin.event.asked_at if begin.event.asked_at is not None else begin.at
    if (begin.event.node, begin.event.fence) == (finish.event.node, finish.event.fence):
        # Whoever has had the shard all the time knows what it has not sent, unless it stopped or was frozen.
        return history.met(since, finish.at, kinds=MEMBERSHIP)
    nodes = (begin.event.node, finish.event.node)
    if history.met(since, finish.at, nodes=nodes, shard=begin.event.shard, id=delivery.id):
        return True
    return begin.event.node == finish.event.node and history.met(since, finish.at, kinds=MEMBERSHIP)


def _may_have_ground(history: History, delivery: DeliveryHistory, entry: Entry) -> bool:
    if any(call.event.attempt == entry.attempt for call in delivery.calls):
        return True
    if history.steps():
        return True
    ended = history.at_of(entry.started_ms + entry.duration_ms)
    since = history.at_of(entry.started_ms) - 2 * history.lease_us
    # What a dead owner had begun is recorded when it is found, after everything that waited.
    due = [delivery.due_ms, *(call.event.due_ms for call in delivery.calls)]
    since = min([since, *(history.at_of(ms) for ms in due if ms is not None)])
    return history.met(since, ended)
