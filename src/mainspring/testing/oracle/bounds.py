"""B, T7: memory and slots stay within their limits, and nobody waits for somebody else's destination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mainspring.testing.oracle.history import At, Delivery, Finding, History
from mainspring.testing.oracle.journal import Call

LATE_US: Final = 500_000
MARGINS: Final = {"window": (1, 1), "in-flight": (1, 0), "host": (1, 0)}
"""How much of its limit may be seen, as a factor and what is added. Of anything else, twice the limit."""
DISTURBING: Final = frozenset({"kill", "pause", "stop", "restart", "join", "store", "store-clock", "foreign-lock"})


def within_bounds(history: History) -> Iterator[Finding]:
    """B. The window holds no more than its limit and one; calls in flight, of an instance and to a host, no more than
    theirs; lanes, pools and circuits no more than twice the window.
    """
    for bound in history.left.bounds if history.left is not None else ():
        factor, more = MARGINS.get(bound.what, (2, 0))
        if bound.value > bound.limit * factor + more:
            yield Finding(
                bound.node, f"{bound.what} reached {bound.value}; the limit is {bound.limit}", len(history.events)
            )


def punctual(history: History) -> Iterator[Finding]:
    """T7. Without a fault of the store or of a process, the first attempt to a fast destination comes at most half a
    second late, plus what the store takes, plus the work of those who were called meanwhile.

    It is asked for where bad destinations cannot take everything by right: a lane takes half of what is left, so with
    k of them there must be 2^(k+3) slots and places. A row that nobody announces is found by a look.
    """
    world = history.world
    bad = sum(host.kind != "fast" for host in world.hosts.values())
    if min(world.in_flight_limit, world.window_limit) < 2 ** (bad + 3) or history.left is None:
        return
    if (world.page_size < 100 and world.latency_ms) or any(fault.kind in DISTURBING for fault in history.faults):
        return
    arrivals = sorted(call.at for call in history.calls)
    for delivery in history.timers:
        if not delivery.calls or delivery.due_ms is None or world.host(delivery.calls[0].event.host).kind != "fast":
            continue
        call = delivery.calls[0]
        since = _could_begin(history, delivery, call)
        if since is None:
            continue
        meanwhile = sum(since <= at < call.at for at in arrivals)
        late = call.at - since - _allowed_us(history, delivery, call, meanwhile)
        if late > 0:
            yield Finding(
                delivery.id,
                f"D={delivery.delivery_id} to the fast {call.event.host} came {(call.at - since) / 1e6:.3f} s late, "
                f"with {meanwhile} calls meanwhile",
                call.place,
            )


def _could_begin(history: History, delivery: Delivery, call: At[Call]) -> int | None:
    """The instant from which on it could be sent: due, known, and its shard owned."""
    if call.event.attempt != 1 or history.resumes(delivery.id) or delivery.due_ms is None:
        return None
    since = history.at_of(delivery.due_ms)
    if not history.world.commits:
        known = [history.events[operation.answered].at for operation, _ in delivery.told]
        return max(since, min(known)) if known else None
    begin = delivery.begin_of(call)
    if begin is None or not delivery.commits:
        return None
    shard = begin.event.shard
    written = [commit.at for commit in delivery.commits if commit.event.verb != "begin" and commit.place < begin.place]
    claimed = [commit.at for commit in history.commits if commit.event.verb == "claim" and commit.event.shard == shard]
    return max(since, *written, *(at for at in claimed if at <= begin.at))


def _allowed_us(history: History, delivery: Delivery, call: At[Call], meanwhile: int) -> int:
    world = history.world
    slots = max(1, min(world.host_limit, world.in_flight_limit // 4))
    seconds = world.host(call.event.host).seconds
    work = meanwhile * seconds / slots
    announced = any(operation.verb != "transaction" for operation, _ in delivery.told)
    look = 0 if announced and not any(fault.kind == "peers" for fault in history.faults) else world.look_seconds
    return LATE_US + (4 * world.latency_ms + world.wire_ms) * 1000 + round((work + look) * 1_000_000)
