"""What cannot be read is set aside, and stops no job: records of runs, and rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from mainspring import unreadable
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.ledger import key_of, stamp_of
from mainspring.jobs.messages import BackfillJob
from mainspring.jobs.record import Terms
from mainspring.jobs.rows import RUNS, Errand
from mainspring.model import Detail, State, Timer, to_json
from mainspring.store import Put
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant
from tests.support.simulated_jobs import World, simulate

MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    unreadable.forget()
    yield
    unreadable.forget()


async def _spoil(world: World, stamp: str) -> None:
    """Make the record of a run unreadable."""
    now = world.clock.now_ms()
    record = await world.store.get_record("launch:job", key_of(stamp), now=now)
    assert record is not None
    await world.store.put_record(
        "launch:job", record.key, b"[" + record.value[1:], expect=record.version, now=now, expires_at=record.expires_at
    )


def _minute(number: int) -> str:
    return stamp_of(EPOCH_MS + number * MINUTE_MS)


async def _spoil_row(world: World, identity: str, payload: str) -> None:
    key = (await world.instance.namespaces.system(RUNS)).key_of(identity)
    [row] = await world.store.get([key])
    assert row is not None
    await world.store.write([Put(replace(row, payload=payload), row.version)])


@pytest.mark.parametrize(
    "fields",
    [
        *({"overlap": overlap} for overlap in ("skip", "bufferOne", "bufferAll", "cancelOther", "allowAll")),
        {"max_runs": 100},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_a_run_whose_record_cannot_be_read_stops_none_after_it(fields: dict[str, Any]) -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="* * * * *", **fields)
            await world.until(3 * 60 + 20)
        await _spoil(world, _minute(3))
        async with world.running():
            await world.until(8 * 60 + 20)
            assert len(world.calls) == 8
            told = [(state, reason) for _, state, reason in (await world.told())[:8]]
            assert told.pop(2) == ("unknown", "The record of this run cannot be read.")
            assert told == [("succeeded", "")] * 7
        assert [found.kind for found in unreadable.known()] == ["launch:job"]

    simulate(main)


@pytest.mark.parametrize("overlap", ["skip", "bufferOne", "bufferAll"])
def test_a_run_whose_record_became_unreadable_while_it_runs_is_not_overlapped(overlap: str) -> None:
    async def main(world: World) -> None:
        ends: list[int] = []

        async def work(_: DueJob) -> None:
            await asyncio.sleep(90 if len(world.calls) == 1 else 1)
            ends.append(world.clock.now_ms())

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", overlap=overlap, timeout_seconds=120.0)
            await world.until(70)
            await _spoil(world, _minute(1))
            await world.until(5 * 60 + 20)
            assert all(at >= ends[0] for at, _ in world.calls[1:])
            assert len(world.calls) == (4 if overlap == "skip" else 5)

    simulate(main)


def test_a_run_that_is_under_way_is_seen_behind_a_skipped_one_whose_record_cannot_be_read() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            await asyncio.sleep(150)

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", timeout_seconds=170.0)
            await world.until(130)
            await _spoil(world, _minute(2))
            await world.until(4 * 60 + 20)
            assert [at for at, _ in world.calls] == [EPOCH_MS + MINUTE_MS, EPOCH_MS + 4 * MINUTE_MS]

    simulate(main)


def test_a_run_that_has_not_begun_and_whose_record_cannot_be_read_is_put_aside_and_stops_none() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            await world.until(119.5)
            await _spoil(world, _minute(2))
            await world.until(4 * 60 + 20)
            assert [(at - EPOCH_MS) // MINUTE_MS for at, _ in world.calls] == [1, 3, 4]
            [row] = await instance.jobs_assembly.rows.runs([f"job@{_minute(2)}"])
            assert row is not None
            assert row.state is State.PARKED

    simulate(main)


def test_an_instant_whose_record_cannot_be_read_before_it_is_planned_stops_none() -> None:
    async def main(world: World) -> None:
        await world.store.put_record("launch:job", key_of(_minute(2)), b"?", expect=0, now=world.clock.now_ms())
        async with world.running():
            await world.create(schedule="* * * * *")
            await world.until(4 * 60 + 20)
            assert [(at - EPOCH_MS) // MINUTE_MS for at, _ in world.calls] == [1, 3, 4]

    simulate(main)


def test_a_backfill_goes_on_behind_a_record_that_cannot_be_read() -> None:
    async def main(world: World) -> None:
        stamp = stamp_of(EPOCH_MS - 2 * MINUTE_MS, "backfill")
        await world.store.put_record("launch:job", key_of(stamp), b"?", expect=0, now=world.clock.now_ms())
        async with world.running() as instance:
            await world.create(schedule="* * * * *")
            since, until = to_instant(EPOCH_MS - 3 * MINUTE_MS), to_instant(EPOCH_MS)
            await instance.jobs.backfill(BackfillJob(name="job", since=since, until=until))
            await world.until(30)
            assert len([call for _, call in world.calls if call.kind == "backfill"]) == 2

    simulate(main)


def test_a_run_whose_row_cannot_be_read_has_failed_and_stops_none() -> None:
    async def main(world: World) -> None:
        async with world.running():
            await world.create(schedule="* * * * *")
            await world.until(119.5)
            await _spoil_row(world, f"job@{_minute(2)}", "?")
            await world.until(4 * 60 + 20)
            assert [(at - EPOCH_MS) // MINUTE_MS for at, _ in world.calls] == [1, 3, 4]
            assert [state for _, state, _ in (await world.told())[:4]] == ["succeeded", "failed", *["succeeded"] * 2]
        assert [(found.kind, found.name) for found in unreadable.known()] == [("run", f"job@{_minute(2)}")]

    simulate(main)


def test_a_row_whose_id_is_no_runs_is_put_aside_at_its_first_attempt() -> None:
    async def main(world: World) -> None:
        names = ("foo", "@5", "job@", "job@x", "job@-1", "job@9999999999999999")
        now = world.clock.now_ms()
        detail = Detail(execute_at=now, callback_url="-:", delivery_id="m", created_at=now, updated_at=now)
        errand = to_json(Errand(kind="scheduled", terms=Terms())).decode()
        async with world.running() as instance:
            namespace = await instance.namespaces.system(RUNS)
        for name in names:
            place = asdict(namespace.key_of(name))
            row = Timer(**place, namespace=RUNS, timer_id=name, due_at=now, detail=detail, payload=errand)
            await world.store.write([Put(row, 0)])
        async with world.running() as instance:
            await world.until(20)
            rows = await instance.jobs_assembly.rows.runs(names)
            assert [(row.state, row.attempts) for row in rows if row] == [(State.PARKED, 0)] * len(names)
            looks = [await world.store.history(namespace.key_of(name)) for name in names]
            assert [len(attempts) for attempts in looks] == [1] * len(names)
        assert {found.name for found in unreadable.known()} == set(names)

    simulate(main)
