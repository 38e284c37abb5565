"""I: work is done once per key, and one program at a time believes that it holds a lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from mainspring.testing.oracle.history import NEVER, At, Finding, History, Operation
from mainspring.testing.oracle.journal import Effect, Fail, Held, Info


def exactly_once(history: History) -> Iterator[Finding]:
    """I. Work for a key is begun again only after it has failed, was forgotten by hand, or its result has expired;
    everybody who is answered for a key is told the same result, and has asked with the same payload; a key is unknown
    only if work for it was begun; of two holders of a lock one has stopped believing before the other begins, and the
    later one has the greater token.
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
    if after.at - before.at >= history.world.idempotency_ttl_seconds * 1_000_000:
        return True
    return _forgotten(operations, before.place, after.place)


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
    results = {effect.event.mark for effect in effects if effect.event.stage == "done"}
    for operation in answered:
        for view in operation.views:
            if results and view.mark not in results:
                yield Finding(key, f"{operation} was told {view.mark!r}, which nobody made", operation.answered)
    for before, after in combinations(answered, 2):
        ttl = history.world.idempotency_ttl_seconds * 1_000_000
        apart = history.events[after.answered].at - before.invoke.at
        if apart >= ttl or _forgotten(operations, before.place, after.answered):
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
        said = operation.answer
        code = said.code if isinstance(said, Fail) else said.reason if isinstance(said, Info) else ""
        if code == "unknown_outcome" and operation.answered < first:
            yield Finding(
                key, f"{operation} was told that it is unknown; nobody had begun the work", operation.answered
            )
    left = history.left
    for record in left.keys if left is not None and left.idempotency else ():
        if record.key == key and record.state == "unknown" and not effects:
            yield Finding(key, "it is on record as unknown, and nobody had begun the work")


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
