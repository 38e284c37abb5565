"""T1: what was acknowledged is kept, and what is kept was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.testing.oracle.history import NEVER, PARKS, REMOVES, DeliveryHistory, Finding, History, Operation
from mainspring.testing.oracle.journal import Commit, Row, View


def kept(history: History) -> Iterator[Finding]:
    """T1. A promised D that nobody has ended is accepted, or parked or dropped with a reason; a row's D is that of its
    id's last ok, or of a later info.

    With commits: each acknowledged write has its commit between question and answer; each commit that ends a D does so
    for a client who may have asked for it, or for the attempt of that very D; what is recorded as done was accepted;
    what the commits leave is what is in the store. Where a namespace gets more shards, an id may be created in two of
    them at the same time: the one in the older may then be removed.

    Without: an id has one row at a time and a D never comes back, so each D lives once and without a break. An
    operation *may* have ended D unless it was answered before D was asked for, or removed another D by its own words;
    only what nobody may have ended must be accounted for. A D that was seen before an operation was asked for is
    certainly gone when that is acknowledged with another D, or as a delete.
    """
    if history.world.commits:
        yield from _unwritten(history)
        yield from _unasked(history)
        yield from _mistaken(history)
        yield from _unaccepted(history)
        yield from _different(history)
    else:
        yield from _lost(history)
        yield from _resurrected(history)
    yield from _unexplained(history)


# --- by commits -------------------------------------------------------------------------------------------


def _unwritten(history: History) -> Iterator[Finding]:
    for operation in history.operations.values():
        if operation.invoke.service != "timers" or operation.verb in ("get", "list"):
            continue
        for view in operation.views:
            if view.delivery_id and not _is_written(history, operation, view):
                yield Finding(
                    view.id,
                    f"{operation} was acknowledged as D={view.delivery_id}, and not written",
                    operation.answered,
                )


def _is_written(history: History, operation: Operation, view: View) -> bool:
    delivery = history.deliveries[view.delivery_id]
    removes = operation.verb in REMOVES
    for commit in delivery.commits:
        if operation.place < commit.place < operation.answered and commit.event.verb == "write":
            if removes and commit.event.after == 0 and commit.event.delivery_before == view.delivery_id:
                return True
            if not removes and commit.event.after and commit.event.delivery_id == view.delivery_id:
                return True
    # What is parked already is not parked again; it was, or is, parked.
    return operation.verb in PARKS and view.state == "parked" and bool(delivery.commits)


def _unasked(history: History) -> Iterator[Finding]:
    for id, commits in history.rows.items():
        present: set[int] = set()
        for place, commit in commits:
            before = commit.delivery_before
            if commit.shard is not None and commit.after is not None:
                (present.add if commit.after else present.discard)(commit.shard)
                if not commit.after and any(newer > commit.shard for newer in present):
                    continue  # created twice at the same time, and that one counts
            if commit.verb != "write" or not before or (commit.after and commit.delivery_id == before):
                continue
            removes = commit.after == 0
            asked = history.acting(id) if not commit.op else _of(history, commit.op)
            if not any(
                (operation.verb in REMOVES if removes else operation.starts(id))
                and operation.place < place < operation.until
                for operation in asked
            ):
                done = "removed" if removes else f"replaced by D={commit.delivery_id}"
                yield Finding(id, f"D={before} was {done}, and nobody had asked for it", place)


def _of(history: History, op: str) -> Iterator[Operation]:
    operation = history.operations.get(op)
    if operation is not None and operation.may_have_acted:
        yield operation


def _mistaken(history: History) -> Iterator[Finding]:
    for id, commits in history.rows.items():
        for place, commit in commits:
            if commit.verb == "finish" and commit.delivery_before and commit.delivery_before != commit.delivery_id:
                yield Finding(
                    id, f"the end of D={commit.delivery_id} was written over D={commit.delivery_before}", place
                )


def _unaccepted(history: History) -> Iterator[Finding]:
    for delivery in history.timers:
        for place, finish in delivery.finishes:
            if finish.next not in ("done", "rescheduled"):
                continue
            if not any(
                reply.place < place
                and reply.event.attempt == finish.attempts
                and (reply.event.accepted if finish.next == "done" else reply.event.next_ms is not None)
                for reply in delivery.replies
            ):
                yield Finding(
                    delivery.id, f"D={delivery.delivery_id} is recorded as {finish.next}; nobody accepted it", place
                )


def _different(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.timers:
        return
    end = len(history.events)
    for id in dict.fromkeys((*history.rows, *history.rows_left)):
        last = history.rows[id][-1].event if history.rows.get(id) else None
        expected = _delivery_after(last) if last is not None else ""
        row = history.rows_left.get(id)
        found = row.delivery_id if row is not None else ""
        if expected != found:
            yield Finding(
                id, f"the last commit leaves D={expected or 'none'}, and the store has D={found or 'none'}", end
            )


def _delivery_after(commit: Commit) -> str:
    if not commit.after:
        return ""
    return commit.delivery_after or commit.delivery_id if commit.verb == "finish" else commit.delivery_id


# --- by what was told -------------------------------------------------------------------------------------


def _lost(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.timers:
        return
    for delivery in history.timers:
        promise = next((operation for operation, _ in delivery.told if operation.verb not in REMOVES), None)
        if promise is None or any(_may_end(history, operation, delivery) for operation in history.acting(delivery.id)):
            continue
        row = history.rows_left.get(delivery.id)
        if row is not None and row.delivery_id == delivery.delivery_id:
            continue  # whether it should still be there is a question of time: Live
        if any(reply.event.accepted for reply in delivery.replies):
            continue
        if any(entry.next == "dropped" and entry.detail for entry in delivery.entries):
            continue
        yield Finding(
            delivery.id,
            f"D={delivery.delivery_id} was promised ({promise}); it was not accepted and is not in the store",
            promise.answered,
        )


def _may_end(history: History, operation: Operation, delivery: DeliveryHistory) -> bool:
    """Whether this operation can have put an end to D."""
    views = [view for view in operation.views if view.id == delivery.id and view.delivery_id]
    if operation.verb == "delete" and views:
        return any(view.delivery_id == delivery.delivery_id for view in views)
    if operation.verb not in REMOVES:
        if not operation.starts(delivery.id):
            return False
        if len(views) == 1 and views[0].delivery_id == delivery.delivery_id:
            return False
    return operation.until > _asked_for(delivery)


def _asked_for(delivery: DeliveryHistory) -> int:
    """The first place at which D can have begun: where the operation was invoked that started it."""
    return min((operation.place for operation, _ in delivery.told if operation.starts(delivery.id)), default=-1)


def _resurrected(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.timers:
        return
    end = len(history.events)
    for row in left.rows:
        delivery = history.deliveries.get(row.delivery_id)
        gone = ended_by(history, row.id, delivery) if delivery is not None else None
        if gone is not None:
            yield Finding(row.id, f"D={row.delivery_id} is in the store, and {gone} had ended it", end)
        elif (delivery is None or not delivery.told) and not _has_source(history, row):
            yield Finding(row.id, f"D={row.delivery_id} is in the store, and nobody can have asked for it", end)


def ended_by(history: History, id: str, delivery: DeliveryHistory) -> Operation | None:
    """The first acknowledged operation after which D is certainly gone."""
    seen = min((operation.answered for operation, _ in delivery.told), default=NEVER)
    seen = min(seen, min((call.place for call in delivery.calls), default=NEVER))
    first: Operation | None = None
    for operation in history.by_id.get(id, ()):
        if not operation.is_ok or operation.verb.startswith("bulk-"):
            continue
        views = [view for view in operation.views if view.id == id and view.delivery_id]
        if not views:
            continue
        if operation.verb == "delete":
            gone = views[-1].delivery_id == delivery.delivery_id or operation.place > seen
        else:
            gone = operation.place > seen and all(view.delivery_id != delivery.delivery_id for view in views)
        if gone and (first is None or operation.answered < first.answered):
            first = operation
    return first


def _has_source(history: History, row: Row) -> bool:
    """Whether an answer that was lost, or a receiver that asked for another time, can have made this delivery."""
    if any(operation.starts(row.id) and not operation.is_ok for operation in history.acting(row.id)):
        return True
    if any(operation.starts(row.id) and not operation.views for operation in history.acting(row.id)):
        return True
    return any(
        reply.event.next_ms is not None
        for delivery in history.timers
        if delivery.id == row.id
        for reply in delivery.replies
    )


# --- reasons ----------------------------------------------------------------------------------------------


def _unexplained(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.timers:
        return
    end = len(history.events)
    for row in left.rows:
        if row.state != "parked" or row.reason:
            continue
        if not any(operation.verb in PARKS for operation in history.acting(row.id)):
            yield Finding(row.id, f"D={row.delivery_id} is parked, by nobody and without a reason", end)
    for delivery in history.timers:
        for entry in delivery.entries:
            if entry.next in ("dropped", "parked") and not entry.detail:
                yield Finding(delivery.id, f"D={delivery.delivery_id} was {entry.next} without a reason", end)
        for place, finish in delivery.finishes:
            if finish.next in ("dropped", "parked") and not finish.recorded:
                yield Finding(delivery.id, f"D={delivery.delivery_id} was {finish.next}, and no entry says why", place)
