"""A small engine without concurrency of its own: whoever drives it says what happens next, and it writes the journal.

Every step is legal by construction, so what it writes must raise nothing. Operations and attempts are cut into their
steps (asked, landed, answered; begun, sent, arrived, answered, recorded), to be interleaved at will.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import msgspec

from mainspring.model import FOREVER, RetryPolicy
from mainspring.testing.oracle.journal import (
    AnyEvent,
    Asked,
    Bound,
    Call,
    Commit,
    Entry,
    Event,
    Fail,
    Fault,
    Info,
    Invoke,
    Left,
    Ok,
    Owner,
    Reply,
    Row,
    Sent,
    View,
)
from mainspring.testing.oracle.world import World

EPOCH_MS = 1_000_000
LEASE_MS = 6000
RENEW_MS = 2000
POLICY = RetryPolicy(max_attempts=4, initial_interval_seconds=0.2, max_interval_seconds=1.0, jitter=0.0)
WITH_COMMITS = World(commits=True, policy=POLICY, wire_ms=1000, call_timeout_ms=10_000)
WITHOUT = msgspec.structs.replace(WITH_COMMITS, commits=False)


@dataclass(frozen=True)
class Timer:
    """A row."""

    id: str
    delivery_id: str
    execute_ms: int
    due_ms: int
    mark: str
    delivery: str = "at-least-once"
    host: str = "a"
    generation: int = 1
    version: int = 1
    state: str = "scheduled"
    attempts: int = 0
    reason: str = ""


@dataclass
class Attempt:
    """One that was begun: the row as it was then, and how far it has come."""

    timer: Timer
    node: str
    fence: int
    started_ms: int
    sent: bool = False
    arrived: bool = False
    reply: Reply | None = None
    over: bool = False


@dataclass
class Asking:
    """An operation that is under way."""

    invoke: Invoke
    landed: bool = False
    view: View | None = None
    refused: str = ""


@dataclass
class Model:
    nodes: dict[str, bool] = field(default_factory=dict)
    """Names, and whether they run."""
    rows: dict[str, Timer] = field(default_factory=dict)
    journal: list[AnyEvent] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    now: int = 0
    """Microseconds."""
    owner: str = ""
    version: int = 0
    numbers: count[int] = field(default_factory=lambda: count(1))

    # --- time and instances -------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return EPOCH_MS + self.now // 1000

    def write(self, event: AnyEvent) -> None:
        self.journal.append(event)

    def advance(self, ms: int) -> None:
        until = self.now + ms * 1000
        while True:
            step = (self.now // (RENEW_MS * 1000) + 1) * RENEW_MS * 1000
            if step > until:
                break
            self.now = step
            for node, runs in self.nodes.items():
                if runs:
                    self.renew(node)
        self.now = until

    def renew(self, node: str) -> None:
        self.write(Commit(at=self.now, node=node, verb="renew", asked_at=self.now))

    def join(self, node: str) -> None:
        self.nodes[node] = True
        self.renew(node)

    def claim(self, node: str) -> None:
        self.write(
            Commit(
                at=self.now,
                node=node,
                verb="claim",
                shard=0,
                before=self.version,
                after=self.version + 1,
                shard_version=self.version,
                owner=node,
            )
        )
        self.version += 1
        self.owner = node

    def kill(self, node: str) -> None:
        self.write(Fault(at=self.now, kind="kill", node=node))
        self.nodes[node] = False
        for attempt in self.attempts:
            if attempt.node == node and not attempt.arrived:
                attempt.over = True

    def take_over(self, node: str) -> None:
        """After the owner's death: claim when its lease has run out, and judge what it left in flight."""
        self.advance(LEASE_MS)
        self.claim(node)
        for timer in list(self.rows.values()):
            if timer.state == "running":
                self.lost(timer, node)

    # --- clients ------------------------------------------------------------------------------------------

    def ask(self, verb: str, id: str, client: str = "c1", *, due: int | None = None, **terms: object) -> Asking:
        """`due` is in milliseconds from now."""
        due_ms = None if due is None else self.wall_ms + due
        item = Asked(id=id, due_ms=due_ms, **terms)  # type: ignore[arg-type]
        items = () if verb.startswith("bulk-") else (item,)
        invoke = Invoke(at=self.now, op=f"{next(self.numbers)}", client=client, verb=verb, items=items)
        self.write(invoke)
        return Asking(invoke)

    def land(self, asking: Asking) -> None:
        """It takes effect, or is refused."""
        asking.landed = True
        verb = asking.invoke.verb
        if verb.startswith("bulk-"):
            for id in list(self.rows):
                self._change(asking, verb.removeprefix("bulk-"), Asked(id=id))
            asking.view, asking.refused = None, ""
        else:
            self._change(asking, verb, asking.invoke.items[0])

    def _change(self, asking: Asking, verb: str, item: Asked) -> None:
        before = self.rows.get(item.id)
        if verb == "create":
            self._put(asking, before, self._created(item, before))
        elif before is None:
            asking.refused = "not_found"
        elif verb == "delete":
            self._commit_write(before, None)
            del self.rows[item.id]
            asking.view = self._view(before)
        else:
            after = self._changed(verb, item, before)
            if after is None:
                asking.refused = "conflict"
            elif after == before:
                asking.view = self._view(before)
            else:
                self._put(asking, before, replace(after, generation=before.generation + 1, version=before.version + 1))

    def _created(self, item: Asked, before: Timer | None) -> Timer:
        assert item.due_ms is not None
        return Timer(
            id=item.id,
            delivery_id=self._fresh(),
            execute_ms=item.due_ms,
            due_ms=max(item.due_ms, self.wall_ms),
            mark=item.mark or "",
            delivery=item.delivery or "at-least-once",
            host=item.host or "a",
            generation=before.generation + 1 if before is not None else 1,
            version=before.version + 1 if before is not None else 1,
        )

    def _changed(self, verb: str, item: Asked, row: Timer) -> Timer | None:
        """The row as it is to be; None: it cannot be done, the same: there is nothing to do."""
        if verb == "update":
            after = replace(row, mark=row.mark if item.mark is None else item.mark, generation=0)
            return after if item.due_ms is None else self._scheduled(after, item.due_ms)
        if verb == "run-now":
            return None if row.state == "running" else self._scheduled(row, self.wall_ms)
        if verb == "park":
            return row if row.state == "parked" else replace(row, state="parked", due_ms=FOREVER)
        assert verb == "resume"
        if row.state != "parked":
            return None
        return replace(row, state="scheduled", due_ms=max(row.execute_ms, self.wall_ms), attempts=0)

    def _scheduled(self, row: Timer, execute_ms: int) -> Timer:
        due = max(execute_ms, self.wall_ms)
        fresh = self._fresh()
        return replace(row, state="scheduled", due_ms=due, attempts=0, execute_ms=execute_ms, delivery_id=fresh)

    def _fresh(self) -> str:
        return f"D{next(self.numbers)}"

    def _put(self, asking: Asking, before: Timer | None, after: Timer) -> None:
        self._commit_write(before, after)
        self.rows[after.id] = after
        asking.view = self._view(after)

    @staticmethod
    def _view(timer: Timer) -> View:
        return View(
            id=timer.id,
            delivery_id=timer.delivery_id,
            generation=timer.generation,
            state=timer.state,
            attempts=timer.attempts,
            due_ms=timer.execute_ms,
        )

    def _commit_write(self, before: Timer | None, after: Timer | None) -> None:
        self.write(self._commit("write", before, after, (after or before or _NOBODY).delivery_id, node="i1"))

    def _commit(
        self, verb: str, before: Timer | None, after: Timer | None, delivery_id: str, *, node: str, **more: object
    ) -> Commit:
        shown = after or before or _NOBODY
        fields: dict[str, object] = {
            "verb": verb,
            "shard": 0,
            "id": shown.id,
            "before": before.version if before is not None else 0,
            "after": after.version if after is not None else 0,
            "shard_version": self.version,
            "delivery_id": delivery_id,
            "delivery_before": before.delivery_id if before is not None else "",
            "state": after.state if after is not None else "",
            "attempts": after.attempts if after is not None else 0,
            "generation": after.generation if after is not None else 0,
            "due_ms": after.due_ms if after is not None else None,
            "execute_ms": after.execute_ms if after is not None else None,
            "mark": after.mark if after is not None else "",
            "delivery": after.delivery if after is not None else "",
        }
        return Commit(at=self.now, node=node, **(fields | more))  # type: ignore[arg-type]

    def answer(self, asking: Asking) -> None:
        assert asking.landed
        if asking.refused:
            self.write(Fail(at=self.now, op=asking.invoke.op, code=asking.refused, status=404))
        else:
            views = (asking.view,) if asking.view is not None else ()
            self.write(Ok(at=self.now, op=asking.invoke.op, views=views))

    def lose(self, asking: Asking) -> None:
        """The answer never comes, whether it has taken effect or will."""
        self.write(Info(at=self.now, op=asking.invoke.op, reason="cut"))

    def do(self, verb: str, id: str, client: str = "c1", **terms: object) -> View | None:
        asking = self.ask(verb, id, client, **terms)  # type: ignore[arg-type]
        self.advance(1)
        self.land(asking)
        self.advance(1)
        self.answer(asking)
        return asking.view

    # --- the engine ---------------------------------------------------------------------------------------

    def due(self) -> list[Timer]:
        return [t for t in self.rows.values() if t.state in ("scheduled", "retrying") and t.due_ms <= self.wall_ms]

    def begin(self, id: str) -> Attempt:
        """Under the present owner."""
        before = self.rows[id]
        after = replace(before, state="running", attempts=before.attempts + 1, version=before.version + 1)
        self.rows[id] = after
        self.write(
            self._commit(
                "begin", before, after, after.delivery_id, node=self.owner, fence=self.version, asked_at=self.now
            )
        )
        attempt = Attempt(after, self.owner, self.version, self.wall_ms)
        self.attempts.append(attempt)
        return attempt

    def send(self, attempt: Attempt) -> None:
        attempt.sent = True
        timer = attempt.timer
        self.write(
            Sent(at=self.now, node=attempt.node, delivery_id=timer.delivery_id, attempt=timer.attempts, id=timer.id)
        )

    def arrive(self, attempt: Attempt) -> None:
        attempt.arrived = True
        timer = attempt.timer
        self.write(
            Call(
                at=self.now,
                host=timer.host,
                delivery_id=timer.delivery_id,
                attempt=timer.attempts,
                id=timer.id,
                generation=timer.generation,
                mark=timer.mark,
                fence=attempt.fence,
                node=attempt.node,
                wall_ms=self.wall_ms,
                due_ms=timer.execute_ms,
            )
        )

    def reply(self, attempt: Attempt, status: int = 200, *, next_in: int | None = None) -> None:
        attempt.reply = Reply(
            at=self.now,
            delivery_id=attempt.timer.delivery_id,
            attempt=attempt.timer.attempts,
            accepted=status == 200,
            status=status,
            next_ms=None if next_in is None else self.wall_ms + next_in,
        )
        self.write(attempt.reply)

    def finish(self, attempt: Attempt) -> None:
        """Record what the receiver answered, if the owner that began it still is the owner."""
        attempt.over = True
        if attempt.fence != self.version or not self.nodes[attempt.node]:
            return
        reply = attempt.reply
        assert reply is not None
        if reply.next_ms is not None:
            self._conclude(attempt, "rescheduled", "succeeded", reply.next_ms)
        elif reply.status == 200:
            self._conclude(attempt, "done", "succeeded", None)
        elif attempt.timer.delivery == "at-most-once" or attempt.timer.attempts >= POLICY.max_attempts:
            self._conclude(attempt, "parked", "failed", None)
        else:
            wait = min(200 * 2 ** (attempt.timer.attempts - 1), 1000)
            self._conclude(attempt, "retry", "failed", self.wall_ms + wait)

    def lost(self, timer: Timer, node: str) -> None:
        """No report on this attempt will come."""
        ends = timer.delivery == "at-most-once" or timer.attempts >= POLICY.max_attempts
        attempt = Attempt(timer, node, self.version, self.wall_ms)
        self._conclude(attempt, "parked" if ends else "retry", "unknown", None if ends else self.wall_ms)

    def _conclude(self, attempt: Attempt, step: str, outcome: str, next_ms: int | None) -> None:
        begun = attempt.timer
        current = self.rows.get(begun.id)
        status = attempt.reply.status if attempt.reply is not None and outcome != "unknown" else None
        more: dict[str, object] = {
            "fence": attempt.fence,
            "attempts": begun.attempts,
            "outcome": outcome,
            "status": status,
            "recorded": True,
        }
        reason = f"The receiver answered {status}." if status else "Its owner stopped."
        if current is None or current.delivery_id != begun.delivery_id:
            step = "superseded"
            commit = self._commit("finish", None, None, begun.delivery_id, node=attempt.node, next=step, **more)
            self.write(msgspec.structs.replace(commit, id=begun.id, before=None, after=None))
        elif step == "done":
            del self.rows[begun.id]
            self.write(self._commit("finish", current, None, begun.delivery_id, node=attempt.node, next=step, **more))
        else:
            after = self._after(current, step, next_ms, reason)
            self.rows[begun.id] = after
            more["delivery_after"] = after.delivery_id
            self.write(self._commit("finish", current, after, begun.delivery_id, node=attempt.node, next=step, **more))
        self.history.append(
            Entry(
                id=begun.id,
                delivery_id=begun.delivery_id,
                attempt=begun.attempts,
                generation=begun.generation,
                outcome=outcome,
                next=step,
                started_ms=attempt.started_ms,
                duration_ms=self.wall_ms - attempt.started_ms,
                status=status,
                detail=reason,
            )
        )

    def _after(self, current: Timer, step: str, next_ms: int | None, reason: str) -> Timer:
        parked = current.state == "parked"
        after = replace(current, version=current.version + 1, reason=reason)
        if step == "rescheduled":
            assert next_ms is not None
            return replace(
                after,
                state="parked" if parked else "scheduled",
                due_ms=FOREVER if parked else max(next_ms, self.wall_ms),
                execute_ms=next_ms,
                attempts=0,
                generation=current.generation + 1,
                delivery_id=self._fresh(),
            )
        if step == "parked" or parked:
            return replace(after, state="parked", due_ms=FOREVER)
        assert next_ms is not None
        return replace(after, state="retrying", due_ms=next_ms)

    # --- the usual way, and the end ---------------------------------------------------------------------------

    def deliver(self, id: str, status: int = 200, *, next_in: int | None = None) -> Attempt:
        attempt = self.begin(id)
        self.advance(1)
        self.send(attempt)
        self.advance(1)
        self.arrive(attempt)
        self.advance(5)
        self.reply(attempt, status, next_in=next_in)
        self.advance(1)
        self.finish(attempt)
        return attempt

    def come_to_rest(self) -> None:
        """Everything that is due within the next minute is delivered."""
        for attempt in self.attempts:
            if not attempt.over and self.nodes[attempt.node] and attempt.fence == self.version:
                self._end(attempt)
        for _ in range(60):
            for timer in self.due():
                self.deliver(timer.id)
            self.advance(1000)

    def _end(self, attempt: Attempt) -> None:
        if not attempt.sent:
            self.send(attempt)
        if not attempt.arrived:
            self.arrive(attempt)
        if attempt.reply is None:
            self.reply(attempt)
        self.finish(attempt)

    def leave(self, **more: object) -> None:
        rows = tuple(
            Row(
                id=t.id,
                delivery_id=t.delivery_id,
                generation=t.generation,
                state=t.state,
                attempts=t.attempts,
                due_ms=t.execute_ms,
                delivery=t.delivery,
                mark=t.mark,
                host=t.host,
                reason=t.reason,
                shard=0,
            )
            for t in self.rows.values()
        )
        alive = tuple(node for node, runs in self.nodes.items() if runs)
        fields: dict[str, object] = {
            "rows": rows,
            "history": tuple(self.history),
            "owners": (Owner(shard=0, version=self.version, owner=self.owner, alive=self.nodes[self.owner]),),
            "bounds": (
                Bound(node=self.owner, what="window", value=9, limit=8),
                Bound(node=self.owner, what="lanes", value=16, limit=8),
            ),
            "alive": alive,
        }
        fields |= {"at": self.now, "wall_ms": self.wall_ms}
        self.write(Left(**(fields | more)))  # type: ignore[arg-type]


_NOBODY = Timer(id="", delivery_id="", execute_ms=0, due_ms=0, mark="")


def started() -> Model:
    """One instance that owns the only shard, a second beside it."""
    model = Model()
    model.join("i1")
    model.join("i2")
    model.claim("i1")
    model.advance(10)
    return model


def told(journal: list[AnyEvent]) -> list[AnyEvent]:
    """What is known of a history where nobody looks inside: what real processes show."""
    return [event for event in journal if not isinstance(event, Commit | Sent)]


def moved(event: Event, ms: int) -> Event:
    return msgspec.structs.replace(event, at=event.at + ms * 1000)
