"""Clients of jobs, through the SDK; and another program, which writes to the registry itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from mainspring.client import AsyncClient
from mainspring.client._async.jobs import AsyncJobs
from mainspring.errors import MainspringError
from mainspring.jobs.ledger import Ledger
from mainspring.jobs.messages import ListRuns, RunView
from mainspring.jobs.record import Routing
from mainspring.jobs.registry import JOBS, Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.runs import RunReader
from mainspring.model import Record
from mainspring.namespaces.service import NamespaceService
from mainspring.stores.plan import PutRecord
from mainspring.testing.oracle.journal import Asked, Commit, Invoke, JobTerms, View
from mainspring.testing.simulation.clock import EPOCH_MS, SimulatedClock
from mainspring.testing.simulation.database import FOREIGN, Database
from mainspring.testing.simulation.desks import RUN
from mainspring.testing.simulation.draws import Dice, Draws
from mainspring.testing.simulation.plan import Operation
from mainspring.testing.simulation.receivers import host_of
from mainspring.testing.simulation.store import LookingStore
from mainspring.testing.simulation.users.clients import Clients, Told
from mainspring.wire.instants import to_instant, to_ms

NONSENSE: Final = b'{"schedule": "whenever", "url": 7}'


class Foreigner:
    """Another program."""

    name = FOREIGN
    index = -1


class JobUsers(Clients):
    def __init__(self, *args: Any, database: Database, sometimes: Callable[[str], None], **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._database = database
        self._sometimes = sometimes

    async def _carry_out(self, name: str, operation: Operation) -> None:
        if not await self._ask(name, operation) and operation.again:
            look = Operation(client=operation.client, at=0, verb="get", ids=operation.ids, node=operation.node)
            await self._ask(f"{name}?", look)

    async def _ask(self, name: str, operation: Operation) -> bool:
        foreign = operation.verb == "foreign-write"
        job = operation.job
        terms = None if job is None else self._absolute(job)
        host = host_of(operation.destination) if terms is not None else None
        node = self._address(operation.node)
        self._journal.append(
            Invoke(
                at=self._loop.now_us,
                op=name,
                client=f"c{operation.client}",
                service="jobs",
                verb=operation.verb,
                items=(Asked(id=operation.ids[0], job=terms, host=host),),
                node="" if foreign else node,
            )
        )
        client = self._client(name, operation, node)
        try:
            return self._answered(name, await self._speak(client, name, operation, terms))
        except MainspringError as error:
            return self._failed(name, error)

    async def _speak(self, client: AsyncClient, name: str, operation: Operation, terms: JobTerms | None) -> Told:
        jobs = client.jobs
        [id] = operation.ids
        match operation.verb:
            case "create":
                assert terms is not None
                await jobs.create(id, terms.schedule, paused=terms.paused, **self._fields(operation, terms))
            case "update":
                if terms is not None:
                    await jobs.update(id, schedule=terms.schedule, **self._fields(operation, terms))
            case "delete":
                await jobs.delete(id)
            case "pause":
                await jobs.pause(id)
            case "resume":
                await jobs.resume(id)
            case "trigger" | "rerun":
                return await self._run(jobs, id, again=operation.verb == "rerun")
            case "backfill":
                now = self._wall_ms()
                since = to_instant(now - (operation.delay or 1000))
                await jobs.backfill(id, since=since, until=to_instant(now - 500))
            case "get":
                await jobs.get(id)
            case "foreign-write":
                self._write(name, operation, terms)
            case verb:
                raise AssertionError(verb)
        return (View(id=id),), None

    async def _run(self, jobs: AsyncJobs, name: str, *, again: bool) -> Told:
        """Run a job now, or the newest run again that did not succeed."""
        if not again:
            return (_view(await jobs.trigger(name)),), None
        page = await jobs.runs(name, states=("failed", "unknown", "cancelled"), limit=1)
        return tuple([_view(await jobs.rerun(run.launch_id)) for run in page.runs]), None

    def _fields(self, operation: Operation, terms: JobTerms) -> Any:
        return {
            "timezone": terms.time_zone,
            "seconds": terms.seconds,
            "dst": terms.dst,
            "url": f"http://{host_of(operation.destination)}/{RUN}",
            "timeout_seconds": operation.call_timeout / 1000,
            "retry_policy": self._world.policies[operation.policy],
            "overlap": terms.overlap,
            "catchup": terms.catchup,
            "catchup_window_seconds": terms.window_ms / 1000,
            "start_at": None if terms.start_ms is None else to_instant(terms.start_ms),
            "end_at": None if terms.end_ms is None else to_instant(terms.end_ms),
            "max_runs": terms.max_runs,
        }

    def _absolute(self, terms: JobTerms) -> JobTerms:
        """Its bounds as instants of the store."""
        begin = EPOCH_MS + self._world.starts_ms
        return replace(
            terms,
            start_ms=None if terms.start_ms is None else begin + terms.start_ms,
            end_ms=None if terms.end_ms is None else begin + terms.end_ms,
        )

    # --- another program --------------------------------------------------------------------------------------

    def _write(self, name: str, operation: Operation, terms: JobTerms | None) -> None:
        """Put a definition into the registry: a new one, or what is there with another calendar, which may say that the
        job was run just now; or nonsense."""
        [id] = operation.ids
        now = self._wall_ms()
        present = self._database.tables.get_record(JOBS, id, now=now)
        value = NONSENSE
        if terms is not None:
            document = _document(present) if operation.label and present is not None else {}
            for field, given in self._fields(operation, terms).items():
                document[_camel(field)] = to_ms(given) if isinstance(given, datetime) else given
            if operation.label == "ran":
                document["lastRun"] = now
            value = msgspec.json.encode({**document, "schedule": terms.schedule})
        version = 0 if present is None else present.version
        put = PutRecord((JOBS, id), Record(id, value, version + 1, None), expect=version, now=now)
        self._database.commit_now(Foreigner(), put, name)

    # --- what is left -----------------------------------------------------------------------------------------

    async def runs(self, names: Iterable[str]) -> list[RunView]:
        """The ledgers; nothing happens while they are read."""
        runs: list[RunView] = []
        store = LookingStore(self._database, Foreigner())
        clock = SimulatedClock(self._loop, skew_ms=self._wall_ms() - EPOCH_MS - self._loop.now_us // 1000)
        dice = Dice(Draws(0), "looking")
        namespaces = NamespaceService(records=store, clock=clock, randomness=dice, created=lambda: None)
        reader = RunReader(
            registry=Registry(store, clock, Routing(), randomness=dice, check_url=lambda _: None),
            ledger=Ledger(store, clock, retention_ms=0),
            rows=RowStore(store=store, namespaces=namespaces, clock=clock, randomness=dice, wake=lambda _, __: None),
        )
        for name in names:
            cursor: Any = msgspec.UNSET
            while cursor is not None:
                page = await reader.page(ListRuns(name=name, limit=1000, cursor=cursor))
                runs += page.runs
                cursor = page.next_cursor
        return runs

    def count(self, runs: Sequence[RunView], operations: Sequence[Operation]) -> None:
        """Report what happens sometimes, if it did."""
        if any(
            isinstance(event, Commit)
            and event.verb == "write"
            and event.service == "jobs"
            and event.after
            and event.delivery_before not in ("", event.delivery_id)
            for event in self._journal
        ):
            self._sometimes("job re-created beside its old clock")
        caught_up = [run for run in runs if run.kind == "catchup" and run.finished_at is not None]
        for run in runs:
            if run.kind == "scheduled" and run.scheduled_until is None:
                for other in caught_up:
                    assert other.finished_at is not None
                    if other.name == run.name and other.planned_at < run.scheduled_at < other.finished_at:
                        self._sometimes("catch-up meets overlap")
        zones = {operation.job.time_zone for operation in operations if operation.job is not None}
        begin, end = EPOCH_MS + self._world.starts_ms, self._wall_ms()
        for zone in sorted(zones):
            offsets = {datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).utcoffset() for at in (begin, end)}
            if len(offsets) > 1 and runs:
                self._sometimes("DST")


def _document(record: Record) -> dict[str, Any]:
    try:
        document: dict[str, Any] = msgspec.json.decode(record.value)
    except msgspec.DecodeError:
        return {}
    return document if document.get("schedule") != "whenever" else {}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _view(run: RunView) -> View:
    return View(id=run.name, delivery_id=run.delivery_id, state=run.state)
