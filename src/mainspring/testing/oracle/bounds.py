"""B, T7: memory and slots stay within their limits, and nobody waits for somebody else's destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from mainspring.testing.oracle.history import NEVER, At, DeliveryHistory, Finding, History
from mainspring.testing.oracle.journal import Call, Fault

LATE_US: Final = 500_000
MARGINS: Final = {"window": (1, 1), "changed": (1, 1), "lanes": (2, 0)}
"""How far each may go beyond its limit: a factor and an addend. For anything else, the limit itself."""
DISTURBING: Final = frozenset({"kill", "pause", "stop", "restart", "join", "store", "store-clock", "foreign-lock"})


def within_bounds(history: History) -> Iterator[Finding]:
    """B. The window holds no more than its limit and one; calls in flight, of an instance and to a host, no more than
    theirs, and those of fetches to a host no more than half of all there may be, either; there are no more lanes, each
    with its circuit, than twice the window, and no more notes of attempts that were not sent, or of rows that changed,
    than the window holds. For each destination its address, and that it is gone, is known once. Pools of connections
    are not looked at: they belong to senders, which histories do without.
    """
    for bound in history.left.bounds if history.left is not None else ():
        factor, more = MARGINS.get(bound.what, (1, 0))
        if bound.value > bound.limit * factor + more:
            yield Finding(
                bound.node, f"{bound.what} reached {bound.value}; the limit is {bound.limit}", len(history.events)
            )


def punctual(history: History) -> Iterator[Finding]:
    """T7. Without a fault of the store or of a process, the first attempt to a fast destination comes at most half a
    second late, plus what the store takes, plus the work of those who were called meanwhile. A shard that cannot be
    read or written is the trouble of that shard alone.

    It is checked where bad destinations may not rightfully take everything: a lane takes half of what is left, so with
    k of them there must be 2^(k+3) slots and places. Those that never answer do not count against a destination that
    has answered the same instance before: part of what all share is kept from them, however many they are. A row that
    nobody announces is found by a look.
    """
    world = history.world
    if history.left is None or (world.page_size < 100 and world.latency_ms):
        return
    if any(fault.kind in DISTURBING and not _is_of_a_shard(fault) for fault in history.faults):
        return
    crowds = Counter(host.kind for host in world.hosts.values() if host.kind != "fast")
    has_room = min(world.in_flight_limit, world.window_limit) >= 2 ** (crowds.total() + 3)
    if not has_room and not (world.commits and world.slots >= 2 ** (crowds.total() - crowds["silent"] + 3)):
        return
    bad_shards = {fault.shard for fault in history.faults if _is_of_a_shard(fault)}
    proven = _proven(history)
    arrivals = sorted(call.at for call in history.calls)
    for delivery in history.timers:
        if not delivery.calls or delivery.due_ms is None or world.host(delivery.calls[0].event.host).kind != "fast":
            continue
        call = delivery.calls[0]
        since = _could_begin(history, delivery, call)
        if since is None or (not has_room and since < proven.get((call.event.node, call.event.host), NEVER)):
            continue
        if bad_shards and ((begin := delivery.begin_of(call)) is None or begin.event.shard in bad_shards):
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


def _is_of_a_shard(fault: Fault) -> bool:
    """Whether it befalls one shard, and is reported at once: if it is not, a batch waits for its slowest shard."""
    return fault.kind == "store" and fault.shard is not None and fault.mode in ("refuse", "lose")


def _proven(history: History) -> dict[tuple[str, str], int]:
    """When each instance first knew that a destination answers."""
    found: dict[tuple[str, str], int] = {}
    for delivery in history.timers:
        for call in delivery.calls:
            reply = delivery.reply_to(call)
            if reply is not None and reply.event.status is not None:
                told = (call.event.node, call.event.host)
                found[told] = min(found.get(told, NEVER), reply.at + history.world.wire_ms * 1000)
    return found


def _could_begin(history: History, delivery: DeliveryHistory, call: At[Call]) -> int | None:
    """The instant from which it could be sent: due, known, and its shard owned."""
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


def _allowed_us(history: History, delivery: DeliveryHistory, call: At[Call], meanwhile: int) -> int:
    world = history.world
    slots = max(1, min(world.host_limit, world.in_flight_limit // 4))
    seconds = world.host(call.event.host).seconds
    work = meanwhile * seconds / slots
    announced = any(operation.verb != "transaction" for operation, _ in delivery.told)
    announced = announced and not world.wakeups_lost
    look = 0 if announced and not any(fault.kind == "peers" for fault in history.faults) else world.look_seconds
    return LATE_US + (4 * world.latency_ms + world.wire_ms) * 1000 + round((work + look) * 1_000_000)
