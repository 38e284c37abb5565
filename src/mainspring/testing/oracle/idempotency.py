"""I: work is done once per key, and one program at a time believes that it holds a lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from mainspring.clock import SLOW_SECONDS
from mainspring.testing.oracle.history import NEVER, At, Finding, History, Operation
from mainspring.testing.oracle.journal import Effect, Fail, Held, Info
from mainspring.testing.oracle.liveness import AIR_US

LONGEST_STEP_SECONDS: Final = 2 * 3600
"""A result that is kept for longer than this outlasts a step of the store's clock."""
WAITED: Final = frozenset({"in_progress", "lock_taken", "store_unavailable"})
"""Answers of those who would have to wait for somebody."""


def exactly_once(history: History) -> Iterator[Finding]:
    """I. Work for a key is begun again only after it has failed, was forgotten by hand, or its result has expired;
    everybody who gets an answer for a key is told the same result, and has asked with the same payload; a key is
    unknown only if work for it was begun, or if the only program that knows better cannot say so; of two holders of a
    lock, one has stopped believing that it holds it before the other begins, and the later one has the greater token;
    and no earlier holder overwrites what a later one has written.
    """
    effects: dict[str, list[At[Effect]]] = defaultdict(list)
    for effect in history.effects:
        if effect.event.service == "idempotency":
            effects[effect.event.key].append(effect)
    operations: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations.values():
        if operation.invoke.service == "idempotency":
            for item in operation.invoke.items:
                operations[item.id].append(operation)
    for key in dict.fromkeys((*operations, *effects)):
        yield from _begun_again(history, key, effects[key], operations[key])
        yield from _answers(history, key, effects[key], operations[key])
        yield from _unknown(history, key, effects[key], operations[key])
    yield from _believers(history)
    yield from _overwritten(history)


def overdue(history: History) -> Iterator[Finding]:
    """Live, for keys and locks. When all is healed and every lease has ended, whoever asks gets an answer; and nobody
    whose program lives waits for ever."""
    left = history.left
    if left is None or not left.idempotency or history.steps():
        return
    since = left.healed_at + history.lease_us + AIR_US
    for operation in history.operations.values():
        asked = operation.invoke
        if asked.service not in ("idempotency", "locks") or asked.node not in left.alive:
            continue
        if operation.answer is None:
            yield Finding(asked.items[0].id, f"{operation} was never answered", operation.place)
        elif asked.at >= since and _code(operation) in WAITED:
            said = _code(operation)
            yield Finding(asked.items[0].id, f"{operation} was told {said!r} long after healing", operation.place)


def _code(operation: Operation) -> str:
    match operation.answer:
        case Fail(code=code):
            return code
        case Info(reason=reason):
            return reason
        case _:
            return ""


def _begun_again(
    history: History, key: str, effects: Sequence[At[Effect]], operations: Sequence[Operation]
) -> Iterator[Finding]:
    ends: dict[str, At[Effect]] = {e.event.token: e for e in effects if e.event.stage != "began"}
    begun = [effect for effect in effects if effect.event.stage == "began"]
    for before, after in combinations(begun, 2):
        end = ends.get(before.event.token)
        failed = end is not None and end.event.stage == "failed" and end.place < after.place
        if failed or _is_another_life(history, operations, before, after):
            continue
        told = end.event.stage if end is not None and end.place < after.place else "not over"
        yield Finding(key, f"{after.event.token} began the work; {before.event.token} had, and was {told}", after.place)
        return


def _is_another_life(history: History, operations: Sequence[Operation], before: At[Effect], after: At[Effect]) -> bool:
    """Whether somebody may have forgotten the key in between, or its result can have expired."""
    if after.at - before.at >= _ttl_us(history):
        return True
    return _forgotten(operations, before.place, after.place)


def _ttl_us(history: History) -> int:
    """How long a result is certainly kept. When the store's clock jumps ahead, it is over at once; and the store's time
    may have taken a while to reach those who write and those who look."""
    seconds = history.world.idempotency_ttl_seconds
    if history.steps() and seconds < LONGEST_STEP_SECONDS:
        return 0
    return max(0, round((seconds - SLOW_SECONDS) * 1_000_000) - 2 * history.world.latency_ms * 1000)


def _forgotten(operations: Sequence[Operation], since: int, until: int) -> bool:
    return any(
        operation.verb == "forget" and operation.may_have_acted and operation.place < until and operation.until > since
        for operation in operations
    )


def _answers(
    history: History, key: str, effects: Sequence[At[Effect]], operations: Sequence[Operation]
) -> Iterator[Finding]:
    answered = sorted((o for o in operations if o.verb == "call" and o.is_ok), key=lambda o: o.answered)
    if not answered:
        return
    results = {effect.event.mark: effect.at for effect in effects if effect.event.stage == "done"}
    for operation in answered:
        for view in operation.views:
            if results and view.mark not in results:
                yield Finding(key, f"{operation} was told {view.mark!r}, which nobody made", operation.answered)
    for before, after in combinations(answered, 2):
        # Whoever is told late may have been answered first, and may have asked before the other's result was made.
        asked_at, place = min(before.invoke.at, after.invoke.at), min(before.place, after.place)
        told = (view.mark for operation in (before, after) for view in operation.views)
        apart = history.events[after.answered].at - min(
            (results.get(mark, asked_at) for mark in told), default=asked_at
        )
        if apart >= _ttl_us(history) or _forgotten(operations, place, after.answered):
            continue
        marks = [{view.mark for view in operation.views} for operation in (before, after)]
        if marks[0] != marks[1]:
            yield Finding(key, f"{before} was told {marks[0]}, {after} {marks[1]}", after.answered)
            return
        asked = [{item.mark for item in operation.asked(key)} for operation in (before, after)]
        if asked[0] != asked[1]:
            yield Finding(key, f"{after} has another payload than {before}, and was answered", after.answered)
            return


def _unknown(
    history: History, key: str, effects: Sequence[At[Effect]], operations: Sequence[Operation]
) -> Iterator[Finding]:
    first = min((effect.place for effect in effects), default=NEVER)
    for operation in operations:
        if _code(operation) != "unknown_outcome" or operation.answered > first:
            continue
        if not any(_keeps_it(history, other, operation) for other in operations):
            yield Finding(
                key, f"{operation} was told that it is unknown; nobody had begun the work", operation.answered
            )
    left = history.left
    for record in left.keys if left is not None and left.idempotency else ():
        if record.key == key and record.state == "unknown" and not effects and not _is_forgiven(history, operations):
            yield Finding(key, "it is on record as unknown, and nobody had begun the work")


def _keeps_it(history: History, other: Operation, told: Operation) -> bool:
    """Whether `other` may have claimed the key, so that `told` had to hear that it is unknown: it is still under way,
    or its program, which alone knows that no work was begun, has ended or cannot reach the store."""
    if other is told or other.verb != "call" or other.place > told.answered:
        return False
    if other.answered > told.answered:
        return True
    node = other.invoke.node
    if not isinstance(other.answer, Info) or (node and node == told.invoke.node):
        return False
    at = history.events[told.answered].at
    return _has_ended(history, node, since=other.invoke.at) or history.met(at - AIR_US, at, nodes=[node])


def _is_forgiven(history: History, operations: Sequence[Operation]) -> bool:
    """Whether nobody is left to say that no work was begun."""
    return any(
        operation.verb == "call"
        and (operation.answer is None or isinstance(operation.answer, Info))
        and _has_ended(history, operation.invoke.node, since=operation.invoke.at)
        for operation in operations
    )


def _has_ended(history: History, node: str, *, since: int) -> bool:
    left = history.left
    is_away = left is not None and bool(left.alive) and node not in left.alive
    return is_away or any(
        fault.kind in ("kill", "stop") and fault.node in (None, node) and fault.at >= since for fault in history.faults
    )


def _overwritten(history: History) -> Iterator[Finding]:
    """What the holders of a lock have written, each with its token, and over whose."""
    greatest: dict[str, int] = defaultdict(int)
    for effect in history.effects:
        if effect.event.service != "locks":
            continue
        lock, own, before = effect.event.key, int(effect.event.token), int(effect.event.mark)
        if before > own:
            yield Finding(lock, f"the holder of token {own} wrote over what that of {before} had written", effect.place)
        elif before < greatest[lock]:
            yield Finding(lock, f"{before} was there after {greatest[lock]} had been written", effect.place)
        greatest[lock] = max(greatest[lock], own)


def _believers(history: History) -> Iterator[Finding]:
    if history.steps():
        return  # a lock's lease is the store's time: when that jumps ahead, a successor may come early
    holders: dict[str, list[At[Held]]] = defaultdict(list)
    for held in history.held:
        holders[held.event.lock].append(held)
    for lock, beliefs in holders.items():
        for before, after in combinations(beliefs, 2):
            until = before.event.until if before.event.until is not None else NEVER
            if after.at < until:
                yield Finding(lock, f"{after.event.client} holds it beside {before.event.client}", after.place)
            elif None not in (before.event.fence, after.event.fence) and after.event.fence <= before.event.fence:  # type: ignore[operator]
                yield Finding(
                    lock, f"{after.event.client} has token {after.event.fence} after {before.event.fence}", after.place
                )
