"""T3, T4, T5, T6: what receivers see is on time, in force, not repeated without need, and as the policy says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from mainspring.kernel.backoff import max_attempts
from mainspring.model import RetryPolicy
from mainspring.testing.oracle.history import MEMBERSHIP, REMOVES, At, DeliveryHistory, Finding, History
from mainspring.testing.oracle.journal import Call, Commit, Reply
from mainspring.testing.oracle.kept import ended_by

ENDS: Final = frozenset({"done", "dropped", "rescheduled", "parked"})
"""What may follow an attempt and is the end of its delivery, until somebody resumes it."""
ROUNDING_MS: Final = 2
"""Instances count in whole milliseconds: the begin of an attempt, its length, and the wait after it."""


# --- T3 ---------------------------------------------------------------------------------------------------


def early(history: History) -> Iterator[Finding]:
    """T3. No call of D reaches its receiver before the time of D, by the store's clock, apart from the tolerance.

    The time is what the acknowledgement or the commit says; else what the call itself says. Once the database's clock
    has stepped, instants from before and after it cannot be compared: then nothing is said.
    """
    for delivery in history.timers:
        for place, call in delivery.calls:
            due_ms = delivery.due_ms if delivery.due_ms is not None else call.due_ms
            if due_ms is None or call.wall_ms >= due_ms - history.world.tolerance_ms:
                continue
            if not any(fault.kind == "store-clock" and fault.at <= call.at for fault in history.faults):
                yield Finding(
                    delivery.id,
                    f"attempt {call.attempt} of D={delivery.delivery_id} came {due_ms - call.wall_ms} ms early",
                    place,
                )


# --- T4 ---------------------------------------------------------------------------------------------------


def outdated(history: History) -> Iterator[Finding]:
    """T4. A call is begun before its delivery ends, and carries what is in force when it is begun.

    With commits: each call has a begin of its very D and attempt before it, and carries generation, content and time
    of the row at that commit; the time of a D never changes.

    Without: no call arrives later than an answer and the time on the wire after an operation that has certainly
    replaced or removed its D, or changed what it carries; nor with an attempt that the answer to a delete did not know.
    A fault meanwhile adds a lease, for which an instance may have been held up. A call carries what was acknowledged
    for its D and generation.
    """
    if history.world.commits:
        yield from _not_in_force(history)
        yield from _moved(history)
    else:
        for delivery in history.timers:
            yield from _too_late(history, delivery)
            yield from _other_content(history, delivery)


def _not_in_force(history: History) -> Iterator[Finding]:
    rows = _contents(history)
    for delivery in history.timers:
        for call in delivery.calls:
            event = call.event
            begin = delivery.begin_of(call)
            what = f"attempt {event.attempt} of D={delivery.delivery_id}"
            if begin is None:
                yield Finding(event.id, f"{what} was sent and never begun", call.place)
                continue
            content = rows.get(begin.place)
            got = (event.generation, event.mark)
            if content is not None and (content.generation, content.mark) != got:
                expected = f"generation {content.generation} with {content.mark!r}"
                yield Finding(
                    event.id, f"{what} carries generation {got[0]} with {got[1]!r}; begun as {expected}", call.place
                )
            elif None not in (event.due_ms, delivery.due_ms) and event.due_ms != delivery.due_ms:
                yield Finding(event.id, f"{what} says {event.due_ms} for its time {delivery.due_ms}", call.place)


def _contents(history: History) -> dict[int, Commit]:
    """For the place of each begin, the commit that says what the row held: it leaves the content alone itself."""
    found: dict[int, Commit] = {}
    for commits in history.rows.values():
        present: Commit | None = None
        for place, commit in commits:
            if commit.verb != "begin":
                present = commit if commit.after and (commit.mark or commit.generation) else None
            elif present is not None:
                found[place] = present
    return found


def _moved(history: History) -> Iterator[Finding]:
    for delivery in history.timers:
        times = [
            (commit.place, commit.event.execute_ms)
            for commit in delivery.commits
            if commit.event.execute_ms is not None and _leaves(commit.event) == delivery.delivery_id
        ]
        for (_, before), (place, after) in pairwise(times):
            if before != after:
                yield Finding(delivery.id, f"D={delivery.delivery_id} was moved from {before} to {after}", place)


def _leaves(commit: Commit) -> str:
    return commit.delivery_after or commit.delivery_id


def _too_late(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    ended = ended_by(history, delivery.id, delivery)
    known = {
        view.delivery_id: view.attempts
        for operation in ([ended] if ended is not None else [])
        if operation.verb in REMOVES
        for view in operation.views
        if view.id == delivery.id
    }
    for call in delivery.calls:
        what = f"attempt {call.event.attempt} of D={delivery.delivery_id}"
        if ended is not None and ended.answered < call.place:
            after_us = call.at - history.events[ended.answered].at
            unknown_to_it = call.event.attempt > known.get(delivery.delivery_id, call.event.attempt)
            if unknown_to_it or after_us > _under_way_us(history, call):
                yield Finding(delivery.id, f"{what} came {after_us / 1e6:.3f} s after {ended}", call.place)
                continue
        for operation, view in delivery.told:
            newer = operation.answered < call.place and view.generation > call.event.generation > 0
            if newer and call.at - history.events[operation.answered].at > _under_way_us(history, call):
                yield Finding(
                    delivery.id,
                    f"{what} carries generation {call.event.generation}; {operation} had made it {view.generation}",
                    call.place,
                )
                break


def _under_way_us(history: History, call: At[Call]) -> int:
    """How long before its arrival a call may have been begun."""
    usual = (history.world.wire_ms + history.world.tolerance_ms) * 1000
    held_up = history.met(call.at - usual - history.lease_us, call.at)
    return usual + history.lease_us if held_up else usual


def _other_content(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    marks: dict[int, set[str]] = {}
    for operation, view in delivery.told:
        if operation.starts(delivery.id) or operation.verb == "update":
            asked = {item.mark for item in operation.asked(delivery.id) if item.mark is not None}
            if asked:
                marks.setdefault(view.generation, set()).update(asked)
    for place, call in delivery.calls:
        expected = marks.get(call.generation)
        what = f"attempt {call.attempt} of D={delivery.delivery_id}"
        if expected is not None and call.mark not in expected:
            yield Finding(
                delivery.id,
                f"{what} carries {call.mark!r} in generation {call.generation}, for which "
                f"{', '.join(sorted(expected))} was acknowledged",
                place,
            )
        elif None not in (call.due_ms, delivery.due_ms) and call.due_ms != delivery.due_ms:
            yield Finding(delivery.id, f"{what} says {call.due_ms} for its time {delivery.due_ms}", place)


# --- T5 ---------------------------------------------------------------------------------------------------


def repeated(history: History) -> Iterator[Finding]:
    """T5. Attempts of a D grow; none follows a recorded end; an at-most-once D is called once at most; one that was
    accepted, and whose answer was heard, is not called again unless a fault met its instance or its shard.

    Resuming starts attempts again for the same D, so each resume that may have happened allows for one more round. With
    commits attempts are compared in the order of begins, else in that of arrival, where a held-up call may be late.
    """
    for delivery in history.timers:
        if history.world.commits:
            yield from _begun_again(delivery)
            yield from _risked(history, delivery)
        else:
            yield from _fell(history, delivery)
            yield from _after_end(history, delivery)
        yield from _sent_twice(history, delivery)
        yield from _accepted_again(history, delivery)


def _begun_again(delivery: DeliveryHistory) -> Iterator[Finding]:
    last: At[Commit] | None = None
    counts_anew = False  # as attempts do when a row is resumed while one of its calls is in flight
    for commit in delivery.commits:
        event = commit.event
        if event.verb == "write" or event.delivery_id != delivery.delivery_id:
            last = None  # whoever changes a row may have resumed it; a reschedule has started it
            counts_anew = True
        elif event.verb == "finish":
            last = commit
        elif event.verb == "begin":
            if last is not None:
                what = f"attempt {event.attempts} of D={delivery.delivery_id} was begun"
                if last.event.verb == "finish" and last.event.next in ENDS:
                    yield Finding(delivery.id, f"{what} after its end ({last.event.next})", commit.place)
                elif last.event.verb == "begin":
                    yield Finding(
                        delivery.id, f"{what} while attempt {last.event.attempts} was in flight", commit.place
                    )
                elif event.attempts <= last.event.attempts and not counts_anew:
                    yield Finding(delivery.id, f"{what} after attempt {last.event.attempts}", commit.place)
            last = commit
            counts_anew = False


def _risked(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    for place, finish in delivery.finishes:
        if finish.outcome == "unknown" and finish.next == "retry" and history.at_most_once(delivery):
            yield Finding(
                delivery.id,
                f"D={delivery.delivery_id}, at most once, is to be repeated after an unknown outcome",
                place,
            )


def _fell(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    for before, after in pairwise(delivery.calls):
        if after.event.attempt > before.event.attempt or history.resumes(delivery.id, until=after.place):
            continue
        if not history.met(before.at - history.lease_us, after.at, kinds=frozenset({"pause", "network"})):
            yield Finding(
                delivery.id,
                f"attempt {after.event.attempt} of D={delivery.delivery_id} came after attempt {before.event.attempt}",
                after.place,
            )


def _after_end(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    ends = [entry for entry in delivery.entries if entry.next in ENDS]
    if not ends or history.resumes(delivery.id):
        return
    last = max(ends, key=lambda entry: entry.attempt)
    for place, call in delivery.calls:
        if call.attempt > last.attempt:
            yield Finding(
                delivery.id,
                f"attempt {call.attempt} of D={delivery.delivery_id} came; attempt {last.attempt} was its end "
                f"({last.next})",
                place,
            )


def _sent_twice(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    if not history.at_most_once(delivery):
        return
    for number, call in enumerate(delivery.calls):
        if number > history.resumes(delivery.id, until=call.place):
            yield Finding(delivery.id, f"D={delivery.delivery_id}, at most once, came {number + 1} times", call.place)


def _accepted_again(history: History, delivery: DeliveryHistory) -> Iterator[Finding]:
    for position, call in enumerate(delivery.calls[:-1]):
        reply = delivery.reply_to(call)
        if reply is None or not reply.event.accepted or not _was_heard(history, delivery, call, reply):
            continue
        again = delivery.calls[position + 1]
        if reply.place < again.place and not _excused(history, delivery, call, again):
            yield Finding(
                delivery.id,
                f"attempt {again.event.attempt} of D={delivery.delivery_id} came "
                f"{(again.at - reply.at) / 1e6:.3f} s after attempt {call.event.attempt} was accepted",
                again.place,
            )
            return


def _was_heard(history: History, delivery: DeliveryHistory, call: At[Call], reply: At[Reply]) -> bool:
    """Whether an answer came before its caller gave up, and came whole."""
    if reply.event.status is None:
        return False
    took = reply.at - call.at + 2 * (history.world.wire_ms + history.world.tolerance_ms) * 1000
    return took < history.timeout_us(delivery.id)


def _excused(history: History, delivery: DeliveryHistory, call: At[Call], again: At[Call]) -> bool:
    """Whether a second call may follow an accepted first: the outcome of the first may never have been recorded."""
    if history.resumes(delivery.id, since=call.place, until=again.place):
        return True
    host = call.event.host
    begin = delivery.begin_of(call) if history.world.commits else None
    if begin is None:
        return history.met(call.at - history.lease_us, again.at, host=host)
    node, shard = begin.event.node, begin.event.shard
    takers = {
        commit.node
        for place, commit in history.commits
        if commit.verb == "claim" and commit.shard == shard and begin.place < place < again.place
    }
    if history.met(begin.at, again.at, nodes=(node, *takers), shard=shard, id=delivery.id, host=host):
        return True
    finish = delivery.finish_of(begin)
    given_up = finish is not None and finish.event.node == node
    return given_up and history.met(begin.at, again.at, kinds=MEMBERSHIP)


# --- T6 ---------------------------------------------------------------------------------------------------


def against_policy(history: History) -> Iterator[Finding]:
    """T6. No more attempts than the policy allows, and no shorter waits between a failure and the next attempt.

    Of several policies that may have been in force for an id, the mildest counts. A wait counts from the answer that
    the receiver gave, in so far as the caller can have heard it; an attempt whose caller was met by a fault is judged
    lost, and repeated at once. Resuming starts everything again. A wait is kept as an instant of the store's clock: if
    that steps while it lasts, or so shortly before that its instance has not noticed, it is shorter or longer.
    """
    for delivery in history.timers:
        policies = history.policies(delivery.id)
        most = max(map(max_attempts, policies))
        for place, sent in delivery.calls:
            if sent.attempt > most:
                yield Finding(
                    delivery.id,
                    f"attempt {sent.attempt} of D={delivery.delivery_id} came; the policy has {most}",
                    place,
                )
        for call, again in pairwise(delivery.calls):
            reply = delivery.reply_to(call)
            if reply is None or reply.event.accepted or again.event.attempt != call.event.attempt + 1:
                continue
            least = min(_least_wait_ms(policy, call.event.attempt, reply.event) for policy in policies)
            waited = (again.at - reply.at) // 1000
            if waited + history.world.tolerance_ms + ROUNDING_MS >= least or not _was_heard(
                history, delivery, call, reply
            ):
                continue
            if reply.place > again.place or _was_lost(history, delivery, call, again):
                continue
            if history.met(reply.at, again.at, kinds=frozenset({"store-clock"})):
                continue
            yield Finding(
                delivery.id,
                f"attempt {again.event.attempt} of D={delivery.delivery_id} came after {waited} ms; the policy waits "
                f"{least} ms",
                again.place,
            )


def _least_wait_ms(policy: RetryPolicy, attempt: int, reply: Reply) -> int:
    """As documented: the wait doubles (or as the policy says) up to a maximum; Retry-After counts up to that."""
    if policy.schedule is not None:
        base = longest = policy.schedule[min(attempt, len(policy.schedule)) - 1]
    else:
        longest = policy.max_interval_seconds
        base = min(policy.initial_interval_seconds * policy.backoff_multiplier ** min(attempt - 1, 100), longest)
    return max(round(base * 1000), min(reply.retry_after_ms, round(max(base, longest) * 1000)))


def _was_lost(history: History, delivery: DeliveryHistory, call: At[Call], again: At[Call]) -> bool:
    """Whether the answer may never have been recorded, or the delivery was resumed."""
    if history.resumes(delivery.id, since=call.place, until=again.place):
        return True
    begin = delivery.begin_of(call) if history.world.commits else None
    finish = delivery.finish_of(begin) if begin is not None else None
    if finish is not None:
        return finish.event.status is None
    return history.met(call.at - history.lease_us, again.at)
