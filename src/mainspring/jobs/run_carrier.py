"""The carrier of run rows: checks whether the run is still wanted and its turn has come, makes the call, and
records in the ledger how it ended, before the row is removed.

So the ledger is what tells a run that is over from one that is not, whatever becomes of rows: a row that was written
late by an instance that had been frozen finds a final record, and ends without a call.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.background import STORE_RETRY_SECONDS
from mainspring.clock import Clock
from mainspring.delivery.call import Reply, Sends
from mainspring.delivery.guard import Guard
from mainspring.delivery.webhook import new_span_id
from mainspring.errors import StoreUnavailable
from mainspring.failure_lines import FailureLines
from mainspring.jobs.endings import RunEnder, Turn, later, over, pause_ms
from mainspring.jobs.handlers import DueJob, JobHandler
from mainspring.jobs.last_runs import LastRuns
from mainspring.jobs.ledger import BY_CALENDAR, Ledger, LedgerEntry, Run, instant_of, split_id
from mainspring.jobs.messages import RunState
from mainspring.jobs.overlap import is_of_another, objection
from mainspring.jobs.queue import RunQueue
from mainspring.jobs.record import BrokenJob, Job, Terms
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import Errand
from mainspring.jobs.webhook import Trigger, correlation_of, request, trigger
from mainspring.kernel.backoff import max_attempts
from mainspring.kernel.carrier import Carry, Ending, Lane, put_aside
from mainspring.kernel.ownership import Ownership
from mainspring.model import Result, Timer
from mainspring.namespaces.service import DEFAULT, NamespaceService
from mainspring.timers.decision import PUT_OFF_MS, Wishes, decide
from mainspring.timers.destinations import Destinations
from mainspring.timers.handlers import HANDLER_SCHEME, call_handler
from mainspring.unreadable import Unreadable, reason_of, set_aside
from mainspring.wire.instants import to_instant

_STATES: Final[dict[Result, RunState]] = {
    Result.SUCCEEDED: "succeeded",
    Result.FAILED: "failed",
    Result.UNKNOWN: "unknown",
}


Found = tuple[LedgerEntry | None, Job | BrokenJob | None]
"""What a run has to know: its entry in the ledger, and its job as it is now."""


class _Answer(Struct):
    ok: bool = True


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode
_decode_errand: Final = msgspec.json.Decoder(Errand).decode


class RunCarrier:
    """The engine's `Carrier` for run rows."""

    def __init__(
        self,
        *,
        sender: Sends,
        guard: Guard,
        namespaces: NamespaceService,
        registry: Registry,
        ledger: Ledger,
        rows: RowStore,
        clock: Clock,
        randomness: random.Random,
        ownership: Ownership,
        last_runs: LastRuns,
        host_limit: int,
        failures: FailureLines,
    ) -> None:
        self._sender = sender
        self._namespaces = namespaces
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._random = randomness
        self._ownership = ownership
        self._last_runs = last_runs
        self._host_limit = host_limit
        self._failures = failures
        self._destinations = Destinations(guard)
        self._ender = RunEnder(ledger=ledger, rows=rows, clock=clock, tell_failure=self._tell_end)
        self._queue = RunQueue(ledger=ledger, rows=rows, ender=self._ender)
        self.handlers: dict[str, JobHandler] = {}

    # --- the Carrier protocol -------------------------------------------------------------------------

    def lane(self, timer: Timer) -> Lane:
        return self._destinations.lane(timer.namespace, timer.detail.callback_url, self._host_limit)

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        return None

    def reads_ahead(self, timer: Timer) -> bool:
        return self._ledger.reads_many and self._registry.reads_many

    async def read_ahead(self, timers: Sequence[Timer]) -> Sequence[Carry]:
        """One of them that cannot be read leaves all to look for themselves. A run begins when its look does: what it
        decides depends on when that was, and not on how long it took."""
        now = self._clock.now_ms()
        try:
            runs = [split_id(timer.timer_id) for timer in timers]
        except ValueError:
            return [partial(self.carry, timer) for timer in timers]
        try:
            entries, jobs = await asyncio.gather(
                self._ledger.get_many(runs), self._registry.get_many([name for name, _ in runs])
            )
        except StoreUnavailable:
            return [partial(self._carry, timer, run, now, None) for timer, run in zip(timers, runs, strict=True)]
        return [
            partial(self._carry, timer, run, now, (entry, job))
            for timer, run, entry, job in zip(timers, runs, entries, jobs, strict=True)
        ]

    async def carry(self, timer: Timer) -> Ending:
        now = self._clock.now_ms()
        try:
            run = split_id(timer.timer_id)
        except ValueError as error:
            return put_aside(timer, now, _set_aside(timer, error))
        return await self._carry(timer, run, now, None)

    async def _carry(self, timer: Timer, run: tuple[str, str], now: int, found: Found | None) -> Ending:
        """`run` is the name of the job and the stamp; `found` is what was read ahead, if it was."""
        name, stamp = run
        instant = instant_of(stamp)
        errand, problem = _read(timer)
        try:
            entry = await self._ledger.get(name, stamp) if found is None else found[0]
            turn = Turn(timer, name, stamp, errand, entry, now, instant)
            ending = await self._end(turn, problem)
            if ending is None:
                job = await self._registry.get(name) if found is None else found[1]
                ending = await self._look(turn, job)
        except StoreUnavailable as error:
            telemetry.warning("a run is waiting for the store", run=timer.timer_id, reason=error.detail)
            turn = Turn(timer, name, stamp, errand, None, now, instant)
            return later(turn, now + round(STORE_RETRY_SECONDS * 1000))
        if ending is not None:
            return ending
        assert isinstance(job, Job), "Expected a job that was understood: no other gets past the look"
        return await self._call(turn, job)

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        """Repeated under the same delivery id; the repeat finds out whether an attempt is left."""
        return Ending(
            outcome=Result.UNKNOWN,
            next="retry",
            next_at=now + pause_ms(timer.attempts),
            detail=f"{reason} The receiver may have acted on it.",
            started_at=now,
            reachable=None,
            kept=False,
        )

    def tell_failure(self, timer: Timer, ending: Ending) -> None:
        """What is not the end of a run: the ledger has that (`_tell_end`)."""
        if ending.next == "parked":
            self._tell("the row of a run was put aside", timer, reason=ending.detail)
        elif ending.is_attempt and ending.next == "retry":
            is_failed = ending.outcome is Result.FAILED
            self._tell(
                "an attempt of a run failed" if is_failed else "the outcome of an attempt of a run is unknown",
                timer,
                outcome=ending.outcome,
                status=ending.status,
                next=ending.next,
                next_at=None if ending.next_at is None else to_instant(ending.next_at).isoformat(),
                reason=ending.detail,
            )

    def _tell_end(self, turn: Turn, run: Run) -> None:
        if run.state in ("failed", "unknown"):
            words = "a run failed" if run.state == "failed" else "the outcome of a run is unknown"
            self._tell(words, turn.timer, outcome=run.state, status=run.status, next="done", reason=run.reason)

    def _tell(self, message: str, timer: Timer, *, reason: str, **fields: object) -> None:
        self._failures.tell(
            message,
            run=timer.timer_id,
            delivery_id=timer.detail.delivery_id,
            correlation_id=correlation_of(timer.detail.delivery_id),
            attempt=timer.attempts,
            **fields,
            destination=self._destinations.name(timer.detail.callback_url),
            reason=reason,
        )

    async def _end(self, turn: Turn, problem: str) -> Ending | None:
        """An ending for a run that is over, or that nobody can make because it cannot be read; else None."""
        if turn.entry is not None and not turn.entry.is_readable:
            return put_aside(turn.timer, turn.started_at, turn.entry.run.reason)
        if turn.entry is not None and turn.entry.run.is_final:
            await self._ender.hand_on(turn.job, turn.entry.run)
            return over(turn.started_at)
        if problem and turn.entry is not None:
            await self._ender.end(turn, "unknown" if turn.is_repeat else "failed", reason=problem)
        return put_aside(turn.timer, turn.started_at, problem) if problem else None

    async def _look(self, turn: Turn, job: Job | BrokenJob | None) -> Ending | None:
        """An ending if no call should be made now, else None."""
        if isinstance(job, Job) and job.url != turn.timer.detail.callback_url:
            # Its limit and circuit are those of an address that is no longer called.
            return replace(later(turn, turn.started_at), callback_url=job.url)
        if not turn.is_repeat:
            reason = objection(
                job, turn.errand, instant=turn.instant, due_at=turn.due_at, now=turn.started_at, waited=turn.has_waited
            )
            if reason:
                return await self._ender.end(turn, "skipped", reason=reason)
        if not isinstance(job, Job) or is_of_another(job, turn.errand, turn.instant):
            return await self._ender.end_lost(turn, "The job was deleted or broken before another attempt.")
        if turn.timer.attempts > max_attempts(job.policy):
            return await self._ender.end_lost(turn, "")
        return await self._queue.take_turn(turn, job)

    # --- the call -------------------------------------------------------------------------------------

    async def _call(self, turn: Turn, job: Job) -> Ending:
        timer, errand = turn.timer, turn.errand
        if not turn.is_repeat:
            telemetry.run_lateness.observe(max(0, turn.started_at - turn.due_at))
        said = trigger(
            job,
            launch_id=timer.timer_id,
            kind=errand.kind,
            instant=turn.instant,
            previous=instant_of(errand.previous) if errand.previous else None,
            upcoming=errand.next_at if errand.terms == job.terms else (),
            attempt=timer.attempts,
            delivery_id=timer.detail.delivery_id,
        )
        is_handler = job.url.startswith(HANDLER_SCHEME)
        namespace = None if is_handler else await self._namespaces.find(DEFAULT)
        if not await self._ownership.keeps(timer):
            return later(turn, turn.started_at)  # which is not written: whoever owns the row now judges it
        if errand.kind in BY_CALENDAR:
            self._last_runs.note(job, turn.instant)
        if namespace is None:
            reply = await self._run_handler(turn, job, said)
        else:
            reply = await self._send(turn, job, said, namespace.secrets)
        if reply.problem == "exhausted":
            self._tell("a call of a run was put off", timer, reason=reply.detail)
            return later(turn, turn.started_at + reply.duration_ms + PUT_OFF_MS)
        telemetry.call_duration.observe(reply.duration_ms)
        ending = decide(
            timer,
            job.policy,
            reply,
            Wishes(is_ok=_is_ok(reply)),
            started_at=turn.started_at,
            spread=self._random.random(),
        )
        if ending.next == "retry":
            return self._ender.retry(turn, ending, may_be_cancelled=job.definition.overlap == "cancelOther")
        return self._ender.end_with_row(turn, _STATES[ending.outcome], ending)

    async def _send(self, turn: Turn, job: Job, said: Trigger, secrets: Sequence[str]) -> Reply:
        call = request(
            job,
            said,
            self._registry.routing,
            secrets,
            body=turn.errand.body,
            fence=turn.timer.fence,
            now=turn.started_at,
            span_id=new_span_id(self._random),
        )
        return await self._sender.send(call)

    async def _run_handler(self, turn: Turn, job: Job, said: Trigger) -> Reply:
        name = job.url.removeprefix(HANDLER_SCHEME)
        handler = self.handlers.get(name)
        body = job.definition.body if turn.errand.body is UNSET else turn.errand.body
        due = DueJob(
            name=job.name,
            launch_id=said.launch_id,
            kind=said.kind,
            scheduled_at=said.scheduled_at,
            previous_at=said.previous_at,
            next_at=said.next_at,
            attempt=said.attempt,
            delivery_id=said.delivery_id,
            body=None if body is UNSET else msgspec.json.decode(body),
        )
        call = None if handler is None else partial(handler, due)
        return await call_handler(name, call, timeout_ms=turn.timer.detail.callback_timeout_ms, clock=self._clock)


def _read(timer: Timer) -> tuple[Errand, str]:
    """What a row says about its run, or nothing and why."""
    try:
        return _decode_errand(timer.payload or ""), ""
    except ValueError as error:
        return Errand(kind="scheduled", terms=Terms()), _set_aside(timer, error)


def _set_aside(timer: Timer, error: ValueError) -> str:
    set_aside(Unreadable("run", timer.timer_id, reason_of(error), timer.version))
    return f"The row of this run cannot be read: {error}"


def _is_ok(reply: Reply) -> bool:
    """A job runs by its calendar: only `ok` in an answer counts, and anything else in it is the receiver's business."""
    text = reply.body.lstrip()
    if reply.truncated or not text.startswith(b"{"):
        return True
    try:
        return _decode_answer(text).ok
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
