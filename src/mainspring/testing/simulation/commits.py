"""Tells the journal which writes of a request took effect, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from mainspring.fetches.record import NAMESPACE as FETCHES
from mainspring.jobs.definition import Job, Routing, read
from mainspring.jobs.registry import JOBS
from mainspring.jobs.rows import CLOCKS, LAUNCHES
from mainspring.kernel.ownership import INSTANCES
from mainspring.model import FOREVER, Record, State, Timer
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores.plan import (
    BeginAttempts,
    Change,
    Claim,
    DeleteRecord,
    FinishAttempts,
    PutRecord,
    Release,
    Write,
)
from mainspring.testing.oracle.journal import Commit, JobTerms, Service
from mainspring.testing.simulation.tables import RowKey

SERVICES: Final[dict[str, Service]] = {FETCHES: "fetches", CLOCKS: "jobs", LAUNCHES: "jobs"}


def service_of(timer: Timer) -> Service:
    return SERVICES.get(timer.namespace, "timers")


def mark_of(payload: str | None) -> str:
    """What tells one payload of a user from another."""
    return "" if payload is None else str(msgspec.json.decode(payload)["mark"])


def terms_of(record: Record) -> JobTerms | None:
    """What a record says of a job, if it is understood."""
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


def commits_of(
    request: Change,
    *,
    at: int,
    node: str,
    rows: dict[RowKey, Timer],
    versions: dict[int, int],
    asked_at: int,
    operation: str,
    sometimes: Callable[[str], None],
) -> Iterator[Commit]:
    """`rows` and `versions` are what was there before; they are brought up to date on the way."""
    told = _Told(at, node, rows, versions, asked_at, operation)
    match request:
        case Write(items=changes):
            for change, verdict in zip(changes, request.answer, strict=True):
                if verdict is Verdict.APPLIED:
                    yield told.write(change)
        case BeginAttempts(items=begins):
            for begin, verdict in zip(begins, request.answer, strict=True):
                if verdict is Verdict.APPLIED:
                    yield told.begin(begin)
                else:
                    sometimes(f"begin {verdict.value}")
        case FinishAttempts(items=finishes):
            for finish, verdict in zip(finishes, request.answer, strict=True):
                if finish.change is None:
                    sometimes("finish superseded")
                if verdict is Verdict.APPLIED:
                    yield told.finish(finish)
                else:
                    sometimes(f"finish {verdict.value}")
        case Claim(items=claims):
            for claim, verdict in zip(claims, request.answer, strict=True):
                if verdict is Verdict.APPLIED:
                    versions[claim.shard_id] = claim.version + 1
                    yield told.shard("claim", claim.shard_id, claim.version, claim.version + 1, claim.owner)
        case Release(items=claims):
            for claim, verdict in zip(claims, request.answer, strict=True):
                if verdict is Verdict.APPLIED:
                    yield told.shard("release", claim.shard_id, claim.version, claim.version, "")
        case PutRecord(key=key, record=record) if request.answer is not None:
            if key[0] == INSTANCES:
                yield Commit(at=at, node=node, verb="renew", id=key[1], after=record.version, asked_at=asked_at)
            else:
                job = terms_of(record) if key[0] == JOBS else None
                yield Commit(
                    at=at, node=node, verb="put", id="/".join(key), after=record.version, op=operation, job=job
                )
        case DeleteRecord(key=key) if request.answer:
            yield Commit(at=at, node=node, verb="forget", id="/".join(key), op=operation)
        case _:
            pass


class _Told:
    def __init__(
        self,
        at: int,
        node: str,
        rows: dict[RowKey, Timer],
        versions: dict[int, int],
        asked_at: int,
        operation: str,
    ) -> None:
        self._at = at
        self._node = node
        self._rows = rows
        self._versions = versions
        self._asked_at = asked_at
        self._operation = operation

    def shard(self, verb: str, shard_id: int, before: int, after: int, owner: str) -> Commit:
        return Commit(
            at=self._at,
            node=self._node,
            verb="claim" if verb == "claim" else "release",
            shard=shard_id,
            before=before,
            after=after,
            shard_version=before,
            owner=owner,
            asked_at=self._asked_at,
        )

    def write(self, change: Put | Remove) -> Commit:
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

    def begin(self, begin: Begin) -> Commit:
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

    def finish(self, finish: Finish) -> Commit:
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
