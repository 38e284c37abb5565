"""What holds when programs die, race, and replace timers that are running."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mainspring.model import FOREVER
from mainspring.transactional import TimerWriter
from tests.support.program_connections import WAYS, create
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT
from tests.transactional.conftest import SECONDS, Database


@contextmanager
def program(database: Database, name: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has written and not yet committed; killed -9 at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.transactional.program", database.kind, database.place, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=clean_environment(),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


async def found(database: Database, name: str) -> tuple[int, int]:
    """How many orders and timers there are of that name."""
    async with next(iter(WAYS[database.kind].values()))(database.place) as work:
        [[orders]] = await work.fetch(f"SELECT COUNT(*) FROM orders WHERE name = '{name}'")
        [[timers]] = await work.fetch(f"SELECT COUNT(*) FROM {database.tables}timers WHERE timer_id = '{name}'")
        await work.rollback()
        return orders, timers


async def test_a_program_killed_before_its_commit_leaves_neither_order_nor_timer(database: Database) -> None:
    with program(database, "killed-before"):
        pass
    database.engine.watch(0.3)
    assert await found(database, "killed-before") == (0, 0)
    assert database.engine.said("fired killed-before ") == []


async def test_a_program_killed_after_its_commit_leaves_both(database: Database) -> None:
    with program(database, "killed-after") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "committed\n"
    database.engine.wait_for("fired killed-after 1 ", 2)
    assert (await found(database, "killed-after"))[0] == 1


async def test_of_two_creates_of_one_id_the_second_waits_and_counts_on(database: Database) -> None:
    """Both transactions are open at once. The second ends up on top, whatever it saw before."""
    way = list(WAYS[database.kind].values())[1 if database.kind == "postgresql" else 0]

    def second() -> int:
        async def work_alone() -> int:
            async with way(database.place) as work:
                view = await create(
                    TimerWriter(namespace="app"), work, "raced", delay_seconds=3600, handler="note", payload=2
                )
                await work.commit()
                return view.generation

        return asyncio.run(work_alone())

    async with way(database.place) as work:
        await create(TimerWriter(namespace="app"), work, "raced", delay_seconds=3600, handler="note", payload=1)
        waiting = asyncio.create_task(asyncio.to_thread(second))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await work.commit()
        assert await asyncio.wait_for(waiting, SECONDS) == 2
        rows = await work.fetch(f"SELECT payload, generation FROM {database.tables}timers WHERE timer_id = 'raced'")
        assert rows == [("2", 2)]
        await work.rollback()


async def test_a_timer_that_is_running_can_be_replaced(database: Database) -> None:
    """The attempt in flight ends without a trace in the row, and the new generation fires."""
    async with next(iter(WAYS[database.kind].values()))(database.place) as work:
        writer = TimerWriter(namespace="app")
        await create(writer, work, "running", delay_seconds=0, handler="slow", payload="old")
        await work.commit()
        database.engine.wait_for("begun running 1 ")
        replaced = await create(writer, work, "running", delay_seconds=0, handler="note", payload="new")
        await work.commit()
        assert (replaced.generation, replaced.attempts, replaced.state.value) == (2, 0, "scheduled")
        assert database.engine.wait_for("fired running 2 ") == "fired running 2 new"
        database.engine.wait_for("fired running 1 ")
        database.engine.watch(0.3)
        assert database.engine.said("begun running ") == ["begun running 1 old"]
        assert len(database.engine.said("fired running ")) == 2
        assert await work.fetch(f"SELECT state FROM {database.tables}timers WHERE timer_id = 'running'") == []
        await work.rollback()


async def test_a_timer_that_is_parked_is_scheduled_again(database: Database) -> None:
    async with next(iter(WAYS[database.kind].values()))(database.place) as work:
        writer = TimerWriter(namespace="app")
        await create(writer, work, "parked", delay_seconds=3600, handler="note")
        await work.commit()
        await work.fetch(
            f"UPDATE {database.tables}timers SET state = 'parked', due_at = {FOREVER}, attempts = 8 "
            "WHERE timer_id = 'parked'"
        )
        await create(writer, work, "parked", delay_seconds=0, handler="note")
        await work.commit()
        database.engine.wait_for("fired parked 2 ", 2)
