"""P: one call per fetch, one end, and the end is offered until it is taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from mainspring.testing.oracle.history import NEVER, At, Finding, History, Operation
from mainspring.testing.oracle.journal import Call

FINAL: Final = frozenset({"succeeded", "failed", "unknown", "cancelled"})
WATCHDOG_US: Final = 10_000_000
AIR_US: Final = 4_000_000
"""Fetches that wait for a place are looked for every two seconds."""
OFFER_US: Final = 30_000_000
"""How long an offer to a silent origin takes."""


def once(history: History) -> Iterator[Finding]:
    """P. In each life of a reqId, at most one call reaches its target, and whoever is told that it was accepted has
    asked for that one; once it has ended, everybody is told the same end for ever; a result that somebody waits for is
    taken, or still offered, or given up with a reason.

    A reqId has another life when it is asked for again after its record has expired.
    """
    calls: dict[str, list[At[Call]]] = defaultdict(list)
    for call in history.calls:
        if call.event.service == "fetches":
            calls[call.event.id].append(call)
    asked = _asked(history)
    for req_id in dict.fromkeys((*asked, *calls)):
        begun = _begun(history, req_id, asked.get(req_id, ()))
        for number, call in enumerate(calls.get(req_id, ())):
            lives = sum(place < call.place for place in begun)
            if number >= lives:
                told = f"in {lives} life" if lives == 1 else f"in {lives} lives"
                yield Finding(req_id, f"call {number + 1} reached {call.event.host} {told}", call.place)
        yield from _mistaken(req_id, asked.get(req_id, ()))
        yield from _ends(history, req_id, asked.get(req_id, ()), are_known=len(begun) <= 1)
    yield from _not_offered(history)


def overdue(history: History) -> Iterator[Finding]:
    """Live, for fetches: what was accepted is on record, and has ended by its timeout, the watchdog's ten seconds and a
    lease after it was asked for, or after healing. With fewer than four slots, none is kept from silent origins: one
    that waits may have to wait for all offers to those.
    """
    left = history.left
    if left is None or not left.fetches or not left.alive or history.steps():
        return
    found = {fetch.id: fetch for fetch in left.fetched}
    offers = sum(fetch.wanted for fetch in left.fetched) if history.world.slots < 4 else 0
    allowed = WATCHDOG_US + history.lease_us + AIR_US + offers * OFFER_US
    kept = history.world.fetch_retention_seconds * 1_000_000
    for req_id, operations in _asked(history).items():
        accepted = [operation for operation in operations if operation.verb == "create" and operation.is_ok]
        if not accepted:
            continue
        last = accepted[-1]
        life = last.views[0].delivery_id
        timeout = max((i.timeout_ms or 0 for o in operations for i in o.asked(req_id)), default=0) * 1000
        since = max(left.healed_at, history.events[last.answered].at)
        fetch = found.get(req_id)
        if fetch is None or fetch.expired or fetch.delivery_id != life:
            told = [o.invoke.at for o in accepted if o.views[0].delivery_id == life]
            # Whoever was told may have repeated a request that somebody had made before without getting an answer.
            asked = [o.invoke.at for o in operations if o.verb == "create" and o.may_have_acted]
            if left.at < min(told + [at for at in asked if at < min(told)][-1:]) + kept:
                yield Finding(req_id, "it was accepted, and is not on record")
        elif fetch.state not in FINAL and left.at > since + timeout + allowed:
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


def _begun(history: History, req_id: str, operations: Sequence[Operation]) -> list[int]:
    """The places at which lives of a reqId began, or, where commits are not known, at which they can have."""
    record = f"fetch/{req_id}"
    committed = [place for place, commit in history.commits if commit.id == record and commit.before == 0]
    if committed:
        return committed
    kept = round(history.world.fetch_retention_seconds * 1_000_000)
    creates = [operation for operation in operations if operation.verb == "create" and operation.may_have_acted]
    begun: list[int] = []
    until = 0
    for create in sorted(creates, key=lambda create: create.answered):
        ended = NEVER if create.answered == NEVER or not create.is_ok else history.events[create.answered].at
        if not begun or max(create.invoke.at, until) <= ended:
            begun.append(create.place)
            until = max(create.invoke.at, until) + kept
    return begun


def _mistaken(req_id: str, operations: Sequence[Operation]) -> Iterator[Finding]:
    """Creates that were accepted as one, and asked for calls to different hosts."""
    hosts: dict[str, str | None] = {}
    for operation in operations:
        if operation.verb != "create" or not operation.is_ok:
            continue
        for item in operation.asked(req_id):
            for view in operation.views:
                host = hosts.setdefault(view.delivery_id, item.host)
                if item.host != host:
                    told = f"{operation} asked for a call to {item.host} and was told of one to {host}"
                    yield Finding(req_id, told, operation.answered)


def _ends(history: History, req_id: str, operations: Sequence[Operation], *, are_known: bool) -> Iterator[Finding]:
    """Every end of a life that anybody was told, in the order of telling, and what is on record in the end."""
    known: dict[str, tuple[str, str]] = {}
    since: dict[str, int] = {}
    for operation in sorted(operations, key=lambda o: o.answered):
        for view in operation.views:
            if view.id != req_id:
                continue
            life, end = view.delivery_id, (view.state, view.mark)
            if life not in known:
                if view.state in FINAL:
                    known[life], since[life] = end, operation.answered
            elif end != known[life] and (view.state in FINAL or operation.place > since[life]):
                yield Finding(req_id, f"{operation} was told {end}; the end was {known[life]}", operation.answered)
    for fetch in history.left.fetched if history.left is not None else ():
        if fetch.id != req_id:
            continue
        end = known.setdefault(fetch.delivery_id, (fetch.state, fetch.mark))
        if (fetch.state, fetch.mark) != end:
            yield Finding(req_id, f"{(fetch.state, fetch.mark)} is on record; the end was {end}")
    if are_known and len(known) == 1:
        [(state, mark)] = known.values()
        for effect in history.effects:
            if effect.event.service == "fetches" and effect.event.key == req_id and effect.event.mark != mark:
                told = f"the origin got {effect.event.mark!r}; the end was {(state, mark)}"
                yield Finding(req_id, told, effect.place)


def _not_offered(history: History) -> Iterator[Finding]:
    left = history.left
    if left is None or not left.fetches:
        return
    taken = {effect.event.key for effect in history.effects if effect.event.service == "fetches"}
    accepted = {
        view.delivery_id
        for operations in _asked(history).values()
        for operation in operations
        if operation.verb == "create"
        for view in operation.views
    }
    for fetch in left.fetched:
        if fetch.taken and fetch.id not in taken:
            yield Finding(fetch.id, "its result is on record as taken, and nobody took it")
        is_waited_for = fetch.wanted and fetch.state in FINAL and not fetch.taken and not fetch.reason
        leapt = fetch.expired and history.steps()
        if is_waited_for and fetch.delivery_id in accepted and left.alive and not fetch.offered and not leapt:
            yield Finding(fetch.id, f"it is {fetch.state}; its result was neither taken nor given up")
