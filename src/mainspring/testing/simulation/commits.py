"""Tells the journal which writes of a request took effect, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.fetches.record import NAMESPACE as FETCHES
from mainspring.jobs.foreign import read_last_run, split
from mainspring.jobs.record import Job, Routing
from mainspring.jobs.registry import JOBS, read
from mainspring.jobs.rows import CLOCKS, RUNS
from mainspring.kernel.ownership import INSTANCES
from mainspring.model import FOREVER, Record, Shard, State, Timer
from mainspring.store import Begin, Finish, Put, RecordPut, Remove, Verdict
from mainspring.stores.plan import (
    Batch,
    BeginAttempts,
    Change,
    ClaimShards,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    ReleaseShards,
    Write,
)
from mainspring.testing.oracle.journal import Commit, Service
from mainspring.testing.oracle.parts import JobTerms
from mainspring.testing.simulation.desks import Payload
from mainspring.testing.simulation.tables import RowKey

Item = TypeVar("Item")

SERVICES: Final[dict[str, Service]] = {FETCHES: "fetches", CLOCKS: "jobs", RUNS: "jobs"}


def service_of(timer: Timer) -> Service:
    return SERVICES.get(timer.namespace, "timers")


def mark_of(payload: str | None) -> str:
    """What distinguishes one user's payload from another."""
    try:
        return "" if payload is None else msgspec.json.decode(payload, type=Payload).mark
    except msgspec.ValidationError:
        return str(payload)


def terms_of(record: Record) -> JobTerms | None:
    """What a record says about a job, if it is understood."""
    job = read(record, Routing(), check_url=lambda _: None)
    if not isinstance(job, Job):
        return None
    definition = job.definition
    return JobTerms(
        schedule=definition.schedule,
        seconds=definition.seconds,
        time_zone=definition.timezone,
        dst=definition.dst,
        start_ms=definition.starts_at,
        end_ms=definition.ends_at,
        max_runs=definition.max_runs,
        catchup=definition.catchup,
        window_ms=round(definition.catchup_window_seconds * 1000),
        overlap=definition.overlap,
        paused=definition.paused,
        created_ms=definition.created_at,
        updated_ms=definition.updated_at,
    )


class Commits:
    """Tells what a group of requests did, in their order, given the rows and versions that were there before."""

    def __init__(
        self, rows: dict[RowKey, Timer], versions: dict[int, int], *, at: int, sometimes: Callable[[str], None]
    ) -> None:
        self._rows = rows
        self._versions = versions
        self._at = at
        self._sometimes = sometimes
        self._node = ""
        self._asked_at = 0
        self._operation = ""

    def of(self, request: Change, *, node: str, asked_at: int, operation: str) -> Iterator[Commit]:
        """`node` has asked for it at `asked_at`, for a client's operation or none."""
        self._node, self._asked_at, self._operation = node, asked_at, operation
        match request:
            case Write():
                yield from map(self._write, _applied(request))
            case BeginAttempts():
                self._count("begin", request)
                yield from map(self._begin, _applied(request))
            case FinishAttempts():
                self._count("finish", request)
                for finish in _applied(request):
                    if finish.record is not None:
                        yield self._put(finish.record)
                    yield self._finish(finish)
            case ClaimShards():
                yield from map(self._claim, _applied(request))
            case ReleaseShards():
                yield from map(self._release, _applied(request))
            case PutRecord() | DeleteRecord() if request.answer:
                yield self._record(request)
            case _:
                pass

    def _count(self, verb: str, request: BeginAttempts | FinishAttempts) -> None:
        for verdict in request.answer:
            if verdict is not Verdict.APPLIED:
                self._sometimes(f"{verb} {verdict.value}")
        if isinstance(request, FinishAttempts) and any(finish.change is None for finish in request.items):
            self._sometimes("finish superseded")

    def _claim(self, claim: Shard) -> Commit:
        self._versions[claim.shard_id] = claim.version + 1
        return replace(self._shard(claim), verb="claim", after=claim.version + 1, owner=claim.owner)

    def _release(self, claim: Shard) -> Commit:
        return replace(self._shard(claim), verb="release", after=claim.version)

    def _shard(self, claim: Shard) -> Commit:
        return Commit(
            at=self._at,
            node=self._node,
            verb="claim",
            shard=claim.shard_id,
            before=claim.version,
            shard_version=claim.version,
            asked_at=self._asked_at,
        )

    def _record(self, request: PutRecord | DeleteRecord) -> Commit:
        told = Commit(at=self._at, node=self._node, verb="forget", id="/".join(request.key), op=self._operation)
        if isinstance(request, DeleteRecord):
            return told
        if request.key[0] != INSTANCES:
            told = replace(told, verb="put", before=request.expect, after=request.record.version)
            if request.key[0] != JOBS:
                return told
            return replace(
                told, job=terms_of(request.record), last_run_ms=read_last_run(split(request.record.value)[1])
            )
        return replace(told, verb="renew", id=request.key[1], after=request.record.version, asked_at=self._asked_at)

    def _put(self, put: RecordPut) -> Commit:
        record = f"{put.collection}/{put.key}"
        after = put.expect + 1
        return Commit(at=self._at, node=self._node, verb="put", id=record, before=put.expect, after=after)

    def _write(self, change: Put | Remove) -> Commit:
        before = self._before(change)
        after = self._apply(change)
        row = after or before
        assert row is not None
        return replace(
            self._row(row),
            verb="write",
            before=before.version if before else 0,
            after=after.version if after else 0,
            delivery_before=before.detail.delivery_id if before else "",
            op=self._operation,
        )

    def _begin(self, begin: Begin) -> Commit:
        key = (begin.key.shard_id, begin.key.uuid)
        before = self._rows[key]
        after = self._rows[key] = replace(
            before, state=State.RUNNING, attempts=before.attempts + 1, version=before.version + 1, fence=begin.fence
        )
        return replace(
            self._row(after),
            verb="begin",
            before=before.version,
            after=after.version,
            delivery_before=before.detail.delivery_id,
            fence=begin.fence,
            asked_at=self._asked_at,
        )

    def _finish(self, finish: Finish) -> Commit:
        key = (finish.key.shard_id, finish.key.uuid)
        before = self._rows.get(key)
        after = self._apply(finish.change) if finish.change is not None else None
        attempt = finish.attempt
        row = after or before
        told = self._row(row) if row is not None else Commit(at=self._at, node=self._node, verb="finish")
        told = replace(
            told,
            verb="finish",
            shard=finish.key.shard_id,
            before=before.version if finish.change is not None and before is not None else None,
            after=None if finish.change is None else after.version if after is not None else 0,
            delivery_before=before.detail.delivery_id if before is not None else "",
            delivery_after=after.detail.delivery_id if after is not None else "",
            fence=finish.fence,
            shard_version=self._versions.get(finish.key.shard_id),
            asked_at=self._asked_at,
        )
        if attempt is None:
            return told
        return replace(
            told,
            delivery_id=attempt.delivery_id,
            attempts=attempt.attempt,
            next=attempt.next,
            outcome=attempt.outcome.value,
            status=attempt.status,
            recorded=True,
        )

    def _before(self, change: Put | Remove) -> Timer | None:
        key = change.timer.key if isinstance(change, Put) else change.key
        return self._rows.get((key.shard_id, key.uuid))

    def _apply(self, change: Put | Remove) -> Timer | None:
        if isinstance(change, Remove):
            self._rows.pop((change.key.shard_id, change.key.uuid), None)
            return None
        timer = change.timer
        version = change.expect + 1 if change.expect else timer.version
        after = self._rows[timer.shard_id, timer.uuid] = replace(timer, version=version)
        return after

    def _row(self, row: Timer) -> Commit:
        service = service_of(row)
        return Commit(
            at=self._at,
            node=self._node,
            verb="write",
            service=service,
            shard=row.shard_id,
            id=row.timer_id,
            shard_version=self._versions.get(row.shard_id),
            delivery_id=row.detail.delivery_id,
            state=row.state.value,
            attempts=row.attempts,
            generation=row.generation,
            due_ms=row.due_at if row.due_at < FOREVER else None,
            execute_ms=row.detail.execute_at,
            delivery=row.detail.delivery.value,
            mark=mark_of(row.payload) if service == "timers" else "",
        )


def _applied(request: Batch[Item]) -> Iterator[Item]:
    return (item for item, verdict in zip(request.items, request.answer, strict=True) if verdict is Verdict.APPLIED)
