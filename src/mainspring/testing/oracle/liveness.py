"""Live: after healing, everything that is due is sent or ended in time, and every shard has an owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Final

from mainspring.kernel.backoff import max_attempts
from mainspring.model import RetryPolicy
from mainspring.testing.oracle.history import Finding, History
from mainspring.testing.oracle.journal import Call, Commit, Left, Ok, Reply, Row

AIR_US: Final = 2_000_000
WAITING: Final = frozenset({"scheduled", "retrying", "running"})


def live(history: History) -> Iterator[Finding]:
    """Live. Heal at t, or when the last paused process goes on, or the store's clock steps for the last time. Then
    every shard has an owner that is alive by t + L + 2 s + the store's timeout. A row that waits is begun, and one in
    flight ended, by max(its instant, t) + the same + a look + the work before it; and while anything is due, something
    happens at least every 3 * max(L, look, circuit).

    The work before it is that of its destination's queue, that of all others as far as they share its slots, and that
    of every bad destination, where the limits are so small that those may take all there is. With commits a row's
    instant is the next one at which something has to be done; without, it is what the user asked for and all waits of
    its policy.
    """
    left = history.left
    if left is None:
        return
    watch = _Watch(history, left)
    yield from watch.ownerless()
    if not left.timers or not left.alive:
        return
    yield from watch.late_steps()
    yield from watch.left_behind()


class _Watch:
    def __init__(self, history: History, left: Left) -> None:
        self._history = history
        self._left = left
        self._world = history.world
        pauses = (fault.until for fault in history.faults if fault.kind == "pause" and fault.until is not None)
        # From the last step of the store's clock on, its milliseconds can be mapped to those of the run.
        steps = (fault.at for fault in history.faults if fault.kind == "store-clock")
        self._healed_at = max((left.healed_at, *pauses, *steps))

    @property
    def _calm_at(self) -> int:
        return self._healed_at + self._history.lease_us + AIR_US + self._world.store_timeout_ms * 1000

    def ownerless(self) -> Iterator[Finding]:
        if not self._left.alive or self._left.at < self._calm_at:
            return
        for owner in self._left.owners:
            if not owner.alive:
                told = f"belongs to {owner.owner}, which does not know" if owner.owner else "has no owner"
                yield Finding(f"shard {owner.shard}", f"it {told}, in version {owner.version}")

    def late_steps(self) -> Iterator[Finding]:
        """Rows that moved on at last, but too late."""
        for id, commits in self._history.rows.items():
            for before, after in pairwise(commits):
                deadline = self._deadline(before.event, self._host_after(before.event))
                if after.event.verb in ("begin", "finish") and deadline is not None and after.at > deadline:
                    yield Finding(
                        id, f"{after.event.verb} came {(after.at - deadline) / 1e6:.3f} s after its time", after.place
                    )

    def left_behind(self) -> Iterator[Finding]:
        end = len(self._history.events)
        for row in self._left.rows:
            if row.state not in WAITING:
                continue
            last = self._history.rows[row.id][-1].event if self._history.rows.get(row.id) else None
            host = row.host or self._host(row.id, row.delivery_id)
            deadline = self._row_deadline(row) if last is None else self._deadline(last, host)
            due = self._due(row, last)
            if deadline is not None and self._left.at > deadline:
                late = (self._left.at - deadline) / 1e6
                yield Finding(row.id, f"D={row.delivery_id} is still {row.state}, {late:.3f} s after its time", end)
            elif due + self._stood_still_us < self._left.at and self._is_stuck and self._is_good(host):
                still = self._stood_still_us / 1e6
                yield Finding(row.id, f"D={row.delivery_id} is {row.state}, and nothing happened for {still:.3f} s")

    # --- how long it may take -------------------------------------------------------------------------------

    @property
    def _is_stuck(self) -> bool:
        # A destination that is slower than a timeout has an open circuit, healed or not: probes come that far apart.
        is_slow = any(host.kind != "fast" for host in self._world.hosts.values())
        circuit = self._world.circuit_seconds if is_slow else 0.0
        pace = max(self._world.lease_seconds, self._world.look_seconds, circuit)
        return self._stood_still_us > 3 * pace * 1_000_000

    @cached_property
    def _stood_still_us(self) -> int:
        """How long before the end any timer took its last step."""
        steps = (
            event.at
            for event in reversed(self._history.events)
            if isinstance(event, Call | Reply | Ok)
            or (isinstance(event, Commit) and event.verb in ("write", "begin", "finish", "claim"))
        )
        return self._left.at - max(next(steps, self._healed_at), self._healed_at)

    def _due(self, row: Row, last: Commit | None) -> int:
        ms = last.due_ms if last is not None and last.due_ms is not None else row.due_ms
        return self._history.at_of(ms if ms is not None else self._left.wall_ms)

    def _deadline(self, commit: Commit, host: str) -> int | None:
        """By when the engine has to take the next step with a row that this commit leaves; None: it need not."""
        if not commit.after or commit.state not in WAITING:
            return None
        since = max(commit.at, self._healed_at)
        if commit.state == "running":
            return since + self._grace_us(host) + self._world.call_timeout_ms * 1000
        if commit.due_ms is None:
            return None
        return max(since, self._history.at_of(commit.due_ms)) + self._grace_us(host)

    def _row_deadline(self, row: Row) -> int | None:
        if row.due_ms is None:
            return None
        host = row.host or self._host(row.id, row.delivery_id)
        policies = self._history.policies(row.id)
        waits = max(_waits_us(policy) + max_attempts(policy) * self._call_us(host) for policy in policies)
        since = max(self._history.at_of(row.due_ms), self._healed_at)
        resumed = self._history.by_id.get(row.id, ())
        since = max([since, *(self._history.events[o.answered].at for o in resumed if o.is_ok)])
        return since + waits + self._grace_us(host)

    def _grace_us(self, host: str) -> int:
        base = self._history.lease_us + AIR_US + round(self._world.look_seconds * 1_000_000)
        base += (8 * self._world.latency_ms + self._world.store_timeout_ms) * 1000 + self._queue_us(host)
        if self._world.host(host).kind != "fast":
            base += round(self._world.circuit_seconds * 1_000_000)  # its circuit may be open when it is healed
        if self._world.slots < 4:
            base += self._world.call_timeout_ms * 1000  # for calls to silent ones that were under way by then
        return base + self._others_us

    @cached_property
    def _others_us(self) -> int:
        """The work of all others: everybody waits for a slot, and bad destinations may take all if there are few."""
        good = sum(self._queue_us(name) for name in self._queued if self._is_good(name))
        bad = sum(self._queue_us(name) for name in self._queued if not self._is_good(name))
        return good // max(1, self._world.slots // 2) + (2 * bad if self._is_crowded else 0)

    @cached_property
    def _queued(self) -> Counter[str]:
        """How much each destination has to do after healing: what was begun or arrived, and what is left."""
        begun = [c.event for c in self._history.commits if c.event.verb == "begin" and c.event.service == "timers"]
        counted = Counter(self._host_after(begin) for begin in begun if begin.at >= self._healed_at)
        if not begun:
            counted.update(call.event.host for call in self._history.calls if call.at >= self._healed_at)
        counted.update(
            row.host or self._host(row.id, row.delivery_id) for row in self._left.rows if row.state in WAITING
        )
        return counted

    def _queue_us(self, host: str) -> int:
        """The work of a destination's queue: one after another if it does not answer, with probes in between."""
        circuit = 0 if self._is_good(host) else round(self._world.circuit_seconds * 1_000_000)
        slots = max(1, min(self._world.host_limit, self._world.slots // 2)) if self._is_good(host) else 1
        store = 4 * self._world.latency_ms * 1000
        return self._queued[host] * ((self._call_us(host) + store + circuit) // slots + store // self._world.page_size)

    @cached_property
    def _is_crowded(self) -> bool:
        bad = sum(not self._is_good(name) for name in self._queued)
        return min(self._world.in_flight_limit, self._world.window_limit) < int(2 ** min(bad + 3, 30))

    def _is_good(self, host: str) -> bool:
        known = self._world.host(host)
        return known.kind in ("fast", "slow") or known.healed

    def _call_us(self, host: str) -> int:
        known = self._world.host(host)
        wire = 2 * self._world.wire_ms * 1000
        if known.kind == "silent" and not known.healed:
            return self._world.call_timeout_ms * 1000 + wire
        return round(known.seconds * 1_000_000) + wire

    def _host_after(self, commit: Commit) -> str:
        return commit.host or self._host(commit.id, commit.delivery_after or commit.delivery_id)

    def _host(self, id: str, delivery_id: str) -> str:
        """Where a delivery goes: as its calls show, or else the worst that anybody may have asked for."""
        delivery = self._history.deliveries.get(delivery_id)
        if delivery is not None and delivery.calls:
            return delivery.calls[-1].event.host
        asked = [item.host for operation in self._history.acting(id) for item in operation.asked(id) if item.host]
        return min(asked, key=lambda host: (self._is_good(host), self._world.host(host).kind == "fast"), default="")


def _waits_us(policy: RetryPolicy) -> int:
    """All waits of a policy, each at its longest; a receiver may ask for the longest interval every time."""
    if policy.schedule is not None:
        return round(sum(policy.schedule) * (1 + policy.jitter) * 1_000_000)
    total = 0.0
    for attempt in range(max_attempts(policy) - 1):
        wait = policy.initial_interval_seconds * policy.backoff_multiplier ** min(attempt, 100)
        total += min(wait, policy.max_interval_seconds) * (1 + policy.jitter)
    return round(total * 1_000_000)
