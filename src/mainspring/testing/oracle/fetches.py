"""P: one call per fetch, one end, and the end is offered until it is taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from mainspring.testing.oracle.history import At, Finding, History, Operation
from mainspring.testing.oracle.journal import Call, Fetched, Left

FINAL: Final = frozenset({"succeeded", "failed", "unknown", "cancelled"})
WATCHDOG_US: Final = 10_000_000
AIR_US: Final = 2_000_000


def once(history: History) -> Iterator[Finding]:
    """P. In each life of a reqId, at most one call reaches its target; once it has ended, everybody is told the same
    end for ever; a result that somebody waits for is taken, or still offered, or given up with a reason.

    A reqId has another life only when it is asked for again after its record can have expired: so long after it was
    first asked for as ended fetches are kept.
    """
    calls: dict[str, list[At[Call]]] = defaultdict(list)
    for call in history.calls:
        if call.event.service == "fetches":
            calls[call.event.id].append(call)
    asked = _asked(history)
    for req_id in dict.fromkeys((*asked, *calls)):
        creates = [operation for operation in asked.get(req_id, ()) if operation.verb == "create"]
        for number, call in enumerate(calls.get(req_id, ())):
            lives = _lives(history, creates, call.place)
            if number >= lives:
                told = (
                    "nobody had asked for it" if not lives else f"in {lives} life" if lives == 1 else f"{lives} lives"
                )
                yield Finding(req_id, f"call {number + 1} reached {call.event.host}; {told}", call.place)
        yield from _ends(history, req_id, asked.get(req_id, ()), creates)
    yield from _not_offered(history)


def overdue(history: History) -> Iterator[Finding]:
    """Live, for fetches: what was accepted is on record, and has ended by its timeout, the watchdog's ten seconds and a
    lease after it was asked for, or after healing.
    """
    left = history.left
    if left is None or not left.fetches or not left.alive:
        return
    found = {fetch.id: fetch for fetch in left.fetched}
    for req_id, operations in _asked(history).items():
        creates = [operation for operation in operations if operation.verb == "create" and operation.is_ok]
        if not creates:
            continue
        timeout = max((i.timeout_ms or 0 for o in creates for i in o.asked(req_id)), default=0) * 1000
        since = max(left.healed_at, history.events[creates[-1].answered].at)
        fetch = found.get(req_id)
        if fetch is None:
            kept = history.world.fetch_retention_seconds * 1_000_000
            if left.at < creates[-1].invoke.at + kept:
                yield Finding(req_id, "it was accepted, and is not on record")
        elif fetch.state not in FINAL and left.at > since + timeout + WATCHDOG_US + history.lease_us + AIR_US:
            yield Finding(
                req_id, f"it is still {fetch.state}, {(left.at - since - timeout) / 1e6:.3f} s after its time"
            )


def _asked(history: History) -> dict[str, list[Operation]]:
    asked: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations.values():
        if operation.invoke.service == "fetches":
            for item in operation.invoke.items:
                asked[item.id].append(operation)
    return asked


def _lives(history: History, creates: Sequence[Operation], until: int) -> int:
    """How many lives a reqId can have had before a place."""
    kept = round(history.world.fetch_retention_seconds * 1_000_000)
    lives, since = 0, 0
    for create in creates:
        if create.may_have_acted and create.place < until and (not lives or create.invoke.at >= since + kept):
            lives += 1
            since = create.invoke.at
    return lives


def _ends(
    history: History, req_id: str, operations: Sequence[Operation], creates: Sequence[Operation]
) -> Iterator[Finding]:
    """Every end that anybody was told, in the order of telling; what may be of two lives is not compared."""
    if _lives(history, creates, len(history.events)) > 1:
        return
    known: tuple[str, str] | None = None
    since = len(history.events)
    for operation in sorted(operations, key=lambda o: o.answered):
        for view in operation.views:
            if view.id != req_id:
                continue
            end = (view.state, view.mark)
            if view.state in FINAL and known is None:
                known, since = end, operation.answered
            elif known is not None and end != known and (view.state in FINAL or operation.place > since):
                yield Finding(req_id, f"{operation} was told {end}; the end was {known}", operation.answered)
    left = history.left
    if known is None or left is None or not left.fetches:
        return
    for fetch in left.fetched:
        if fetch.id == req_id and (fetch.state, fetch.mark) != known:
            yield Finding(req_id, f"{(fetch.state, fetch.mark)} is on record; the end was {known}")


def _not_offered(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.fetches:
        return
    for fetch in left.fetched:
        if (
            fetch.wanted
            and fetch.state in FINAL
            and not fetch.taken
            and not fetch.reason
            and not _is_offered(fetch, left)
        ):
            yield Finding(fetch.id, f"it is {fetch.state}; its result was neither taken nor given up")
    taken = {effect.event.key for effect in history.effects if effect.event.service == "fetches"}
    for fetch in left.fetched:
        if fetch.taken and fetch.id not in taken:
            yield Finding(fetch.id, "its result is on record as taken, and nobody took it")


def _is_offered(fetch: Fetched, left: Left) -> bool:
    """Whether there still is a row by which it will be offered again."""
    return any(row.id == fetch.id for row in left.rows)
