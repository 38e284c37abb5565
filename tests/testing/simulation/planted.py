"""Defects of timers that are planted to see whether the search finds them.

python -m tests.testing.simulation.planted [name ...]        how many seeds it takes to find each
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from mainspring.errors import StoreUnavailable
from mainspring.kernel import finisher as finishers
from mainspring.kernel.agenda import Agenda, ShardState
from mainspring.kernel.carrier import Ending
from mainspring.kernel.dispatcher import Dispatcher
from mainspring.kernel.fenced import FencedWrites, contained
from mainspring.kernel.lanes import Lanes, LaneState
from mainspring.kernel.ownership import Ownership
from mainspring.kernel.room import Queued
from mainspring.kernel.shares import Tier
from mainspring.kernel.slots import Slots
from mainspring.kernel.unsent import Unsent
from mainspring.kernel.window import Window
from mainspring.model import Delivery, Shard, Timer
from mainspring.store import Begin, Finish, Position, Remove, Verdict
from mainspring.stores.plan import Plan
from mainspring.timers import carrier, record, service
from mainspring.timers.messages import DeletedView, TimerRef
from mainspring.timers.service import TimerService
from mainspring.timers.views import view_of
from tests.testing.simulation.planted_defect import Planted, tell

# --- what was acknowledged is kept ------------------------------------------------------------------------


def _versions_begin_again(good: Any) -> Any:
    def first_version(randomness: Random) -> int:
        good(randomness)  # which is to be the same for everybody else
        return 1

    return first_version


def _conclude_ignores_the_delivery(good: Any) -> Any:
    def conclude(begun: Timer, current: Timer | None, ending: Ending, fence: int) -> Finish:
        if current is not None:
            begun = replace(begun, detail=replace(begun.detail, delivery_id=current.detail.delivery_id))
        return good(begun, current, ending, fence)  # type: ignore[no-any-return]

    return conclude


def _a_stale_delete_is_acknowledged(_: Any) -> Any:
    async def delete(self: TimerService, request: TimerRef) -> DeletedView:
        timer = await self._find(request.namespace, request.timer_id)
        await self._store.write([Remove(timer.key, timer.version)])
        return DeletedView(timer=view_of(timer, None))

    return delete


def _a_stale_change_is_acknowledged(_: Any) -> Any:
    async def change(
        self: TimerService,
        namespace: str,
        timer_id: str,
        change: Callable[[Timer], Timer | None],
        *,
        to_call: bool = False,
    ) -> Timer:
        timer = await self._find(namespace, timer_id, to_call=to_call)
        after = change(timer)
        if after is not None:
            await self._put_changed([(timer, after)])
        return after or timer

    return change


# --- what is sent is in force, and not repeated -----------------------------------------------------------


def _a_new_time_keeps_the_delivery(good: Any) -> Any:
    def schedule(timer: Timer, execute_at: int, *, now: int, delivery_id: str) -> Timer:
        return good(timer, execute_at, now=now, delivery_id=timer.detail.delivery_id)  # type: ignore[no-any-return]

    return schedule


def _what_was_lost_is_repeated(good: Any) -> Any:
    def lost(timer: Timer, policy: Any, *, now: int, reason: str) -> Ending:
        risky = replace(timer, detail=replace(timer.detail, delivery=Delivery.AT_LEAST_ONCE))
        return good(risky, policy, now=now, reason=reason)  # type: ignore[no-any-return]

    return lost


def _shards_are_taken_from_the_living(good: Any) -> Any:
    async def claim(self: Ownership) -> list[int]:
        members, self.members = self.members, ()
        try:
            return await good(self)  # type: ignore[no-any-return]
        finally:
            self.members = members

    return claim


# --- one shard is one shard, one owner is one owner -------------------------------------------------------


def _one_shard_fails_the_batch(good: Any) -> Any:
    async def begin(self: FencedWrites, items: Sequence[Begin]) -> list[Verdict]:
        verdicts: list[Verdict] = await good(self, items)
        return [Verdict.UNAVAILABLE] * len(verdicts) if Verdict.UNAVAILABLE in verdicts else verdicts

    return begin


def _without_a_fence(good: Any) -> Any:
    def write(self: Plan, item: Any) -> Verdict:
        item = replace(item, fence=self.shards[item.key.shard_id].version)
        return good(self, item)  # type: ignore[no-any-return]

    return write


def _the_lease_is_not_asked(good: Any) -> Any:
    def make(self: Dispatcher, **arguments: Any) -> None:
        good(self, **{**arguments, "lease_valid": lambda: True})

    return make


def _the_lease_counts_from_after_the_write(good: Any) -> Any:
    async def renew(self: Ownership) -> None:
        await good(self)
        self.renewed_at = self._clock.monotonic()

    return renew


# --- bounds -----------------------------------------------------------------------------------------------


def _no_limit_of_a_host(_: Any) -> Any:
    def free_slots(self: LaneState, monotonic: float) -> int:
        return 1000

    return free_slots


def _lanes_are_kept_for_ever(_: Any) -> Any:
    def make_room(self: Lanes) -> None:
        """Each may be needed again."""

    return make_room


def _there_is_always_room_for_unsent_attempts(_: Any) -> Any:
    def has_room(self: Unsent, timer: Timer) -> bool:
        return True

    return has_room


def _unsent_attempts_are_forgotten(_: Any) -> Any:
    def has_room(self: Unsent, timer: Timer) -> bool:
        """The oldest give way."""
        if len(self) > self._limit:
            shard_id = next(iter(self._shards))
            self.remove(shard_id, next(iter(self._shards[shard_id])))
        return True

    return has_room


def _no_slots_are_kept(_: Any) -> Any:
    def free(self: Slots, tier: Tier) -> int:
        return self._limit - self._taken

    return free


# --- whatever is due is done ------------------------------------------------------------------------------


def _rows_of_new_lanes_are_not_bookmarked(good: Any) -> Any:
    def leave(self: Window, timer: Timer, who: Queued) -> None:
        if who.weight:
            good(self, timer, who)

    return leave


def _bookmarks_after_a_step_back_are_dropped(good: Any) -> Any:
    def passed(
        self: Window, shard_id: int, start: Position, end: Position | None, *, monotonic: float, page: int
    ) -> None:
        """As if a page that is not full always had read everything."""
        is_row = end is not None and end.uuid
        good(self, shard_id, start, end if is_row else None, monotonic=monotonic, page=page)

    return passed


def _doubt_is_forgotten(_: Any) -> Any:
    async def check(self: Ownership) -> set[int]:
        return set()

    return check


def _the_position_stays(_: Any) -> Any:
    def note(self: Agenda, shard_id: int, due_at: int) -> bool:
        return self.look(shard_id, due_at)

    return note


def _what_was_noted_is_passed(_: Any) -> Any:
    def advance(self: ShardState, read_to: Position) -> None:
        self.position = read_to
        self.noted = None

    return advance


def _an_open_circuit_allows_nothing(good: Any) -> Any:
    def record(self: LaneState, *, reachable: bool, monotonic: float) -> None:
        good(self, reachable=reachable, monotonic=monotonic)
        if self.is_open:
            self._allowed = 0

    return record


def _a_late_look_forgets_what_came_after(_: Any) -> Any:
    async def recheck(self: Dispatcher, timer: Timer) -> None:
        try:
            [current] = await contained(self._store.get([timer.key]))
        except StoreUnavailable:
            self._leave_window(timer)
            self._find_again(timer)
            return
        self._leave_window(timer)
        if current is not None:
            self.note(current.shard_id, current.due_at)

    return recheck


def _claimed_twice(good: Any) -> Any:
    def claim(self: Plan, claim: Shard) -> Verdict:
        return good(self, Shard(claim.shard_id, self.shards[claim.shard_id].version, claim.owner))  # type: ignore[no-any-return]

    return claim


PLANTED: Final = {
    "service.first_version: versions begin again": Planted("T1", service, "first_version", _versions_begin_again),
    "carrier.conclude: ignores the delivery": Planted("T1", finishers, "conclude", _conclude_ignores_the_delivery),
    "service.delete: acknowledges stale": Planted("T1", TimerService, "delete", _a_stale_delete_is_acknowledged),
    "service._change: acknowledges stale": Planted("T1", TimerService, "_change", _a_stale_change_is_acknowledged),
    "record.schedule: keeps the delivery": Planted("T4", record, "schedule", _a_new_time_keeps_the_delivery),
    "decision.lost: repeats at-most-once": Planted("T5", carrier, "lost", _what_was_lost_is_repeated),
    "ownership.claim: takes from the living": Planted("T5", Ownership, "claim", _shards_are_taken_from_the_living),
    "fenced.begin: a shard fails the batch": Planted("T7", FencedWrites, "begin", _one_shard_fails_the_batch),
    "plan._begin: no fence": Planted("F", Plan, "_begin", _without_a_fence),
    "plan._finish: no fence": Planted("F", Plan, "_finish", _without_a_fence),
    "plan._claim: any version": Planted("F", Plan, "_claim", _claimed_twice),
    "dispatcher: ignores the lease": Planted("F", Dispatcher, "__init__", _the_lease_is_not_asked),
    "ownership.renew: counts from after the write": Planted(
        "F", Ownership, "renew", _the_lease_counts_from_after_the_write
    ),
    "lanes.free_slots: ignores the limit": Planted("B", LaneState, "free_slots", _no_limit_of_a_host),
    "lanes._make_room: forgets none": Planted("B", Lanes, "_make_room", _lanes_are_kept_for_ever),
    "unsent.has_room: always": Planted("B", Unsent, "has_room", _there_is_always_room_for_unsent_attempts),
    "unsent.has_room: the oldest give way": Planted("U", Unsent, "has_room", _unsent_attempts_are_forgotten),
    "slots.free: nothing is kept": Planted("T7", Slots, "free", _no_slots_are_kept),
    "window.leave: a lane in neither list": Planted("Live", Window, "leave", _rows_of_new_lanes_are_not_bookmarked),
    "window.passed: drops what a step back left": Planted(
        "Live", Window, "passed", _bookmarks_after_a_step_back_are_dropped
    ),
    "ownership.check: forgets doubt": Planted("Live", Ownership, "check", _doubt_is_forgotten),
    "agenda.note: the position stays": Planted("Live", Agenda, "note", _the_position_stays),
    "agenda.advance: passes what was noted": Planted("Live", ShardState, "advance", _what_was_noted_is_passed),
    "dispatcher._recheck: forgets the next row": Planted(
        "Live", Dispatcher, "_recheck", _a_late_look_forgets_what_came_after
    ),
    "lanes.record: allows none": Planted("Live", LaneState, "record", _an_open_circuit_allows_nothing),
}


if __name__ == "__main__":
    tell(PLANTED)
