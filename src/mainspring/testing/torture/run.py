"""One run: the clients at work, a server that dies as planned and comes back, then rest, then what is left.

The plan is a list of ways to die. A crash point is armed for one start of the server; a server that does not
reach its crash point is killed after a while. At the end the server runs undisturbed until nothing is pending,
is stopped in order, and its file is read: that is the last part of the journal.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw
import msgspec

from mainspring import crashpoint
from mainspring.client import AsyncClient, State
from mainspring.errors import MainspringError
from mainspring.model import Attempt, Delivery, Detail, Namespace
from mainspring.testing.torture.checker import Violation, check
from mainspring.testing.torture.journal import AnyEntry, Arrival, Crash, Journal, Operation, StoredAttempt, StoredTimer
from mainspring.testing.torture.process import ServerProcess, serving
from mainspring.testing.torture.receiver import receiving
from mainspring.testing.torture.workload import Workload

RANDOM: Final = "random"
"""Killed at some moment, wherever it is then."""
REST_SECONDS: Final = 60.0
HOST_LIMIT: Final = "6"
"""Few calls at a time, so that due timers wait in memory: changes then meet rows that were loaded before."""
_LONGEST_LIFE_SECONDS: Final = 5.0
_PENDING: Final = (State.SCHEDULED, State.RUNNING, State.RETRYING)
_DEFAULT: Final = Namespace(name="default", first_shard=0, shard_count=1, created_at=0, updated_at=0, secrets=())
"""Good enough to tell uuids: they do not depend on the shards."""


@dataclass(frozen=True, slots=True)
class Report:
    """What happened in a run, and what was wrong with it."""

    violations: list[Violation]
    operations: Counter[str]
    arrivals: int
    repeats: int
    crashes: Counter[str]
    parked: int

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.operations.items()))
        crashes = ", ".join(f"{count} {name}" for name, count in sorted(self.crashes.items()))
        return (
            f"operations: {outcomes}\narrivals:   {self.arrivals}, of them {self.repeats} repeats\n"
            f"crashes:    {crashes or 'none'}\nparked:     {self.parked}\nviolations: {len(self.violations)}"
        )


def plan_of(seed: int, *, kills: int) -> list[str]:
    """Every crash point once, and so many kills at random, shuffled."""
    plan = [*crashpoint.NAMES, *[RANDOM] * kills]
    random.Random(seed).shuffle(plan)
    return plan


async def run(
    directory: Path,
    *,
    seed: int,
    plan: Iterable[str],
    companion: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Carry a plan out in an empty directory, and check it.

    A companion is a second server on the same file, left in peace: it takes the shards over at every death.
    """
    randomness = random.Random(seed)
    with Journal(directory / "journal.jsonl") as journal:
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(receiving(journal))
            if companion:
                await stack.enter_async_context(serving(directory, renew_seconds="0.5", host_limit=HOST_LIMIT))
            first = await stack.enter_async_context(serving(directory, host_limit=HOST_LIMIT))
            port = str(first.port)
            async with first.client() as client, asyncio.TaskGroup() as tasks:
                workload = Workload(client=client, target_url=receiver.url, journal=journal, seed=seed)
                clients = tasks.create_task(workload.run())
                await asyncio.sleep(1.0)
                await first.kill()
                journal.write(Crash(at=time.monotonic(), how=RANDOM))
                for how in plan:
                    await _live_and_die(directory, port, how, randomness, journal)
                    progress(how)
                workload.stop()
                await clients
            async with serving(directory, port=port) as last:
                async with last.client() as client:
                    await _come_to_rest(client)
                await last.stop()
        timer_ids = {entry.timer_id for entry in journal.entries if not isinstance(entry, Crash)}
        for entry in left_in(directory / "mainspring.db", timer_ids):
            journal.write(entry)
    return report_on(journal.entries)


async def _live_and_die(directory: Path, port: str, how: str, randomness: random.Random, journal: Journal) -> None:
    """One life of the server; crash points at a stop need a stop."""
    life = randomness.uniform(0.2, 1.5)
    crash_at = "" if how == RANDOM else f"{how}:{_count(how, randomness)}"
    server = ServerProcess(directory, port=port, crash_at=crash_at, host_limit=HOST_LIMIT)
    try:
        if await server.ready():
            if how in (RANDOM, crashpoint.SHARD_RELEASED):
                await asyncio.sleep(life)
            if how == crashpoint.SHARD_RELEASED:
                server.send(signal.SIGTERM)
            if how != RANDOM:
                await _wait_for_end(server)
    finally:
        reached = server.exit_code == -signal.SIGKILL
        await server.kill()
    journal.write(Crash(at=time.monotonic(), how=how if reached else RANDOM))


def _count(how: str, randomness: random.Random) -> int:
    if how in (crashpoint.SHARD_CLAIMED, crashpoint.SHARD_RELEASED):
        return 1  # once in a life
    return randomness.randint(1, 30)


async def _wait_for_end(server: ServerProcess) -> None:
    try:
        await server.ended(seconds=_LONGEST_LIFE_SECONDS)
    except TimeoutError:
        return  # it did not come to the crash point; it is killed where it is


async def _come_to_rest(client: AsyncClient) -> None:
    """Wait until nothing is pending but what is parked."""
    async with asyncio.timeout(REST_SECONDS):
        while True:
            try:
                page = await client.timers.list(states=_PENDING, limit=1)
            except MainspringError as error:
                raise RuntimeError(f"Expected a server at rest, got: {error}") from error
            if not page.timers:
                return
            await asyncio.sleep(0.1)


def left_in(path: Path, timer_ids: Iterable[str]) -> Iterator[AnyEntry]:
    """The timers and the history of a store that nobody uses. The history knows only uuids, hence the ids."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        rows = connection.execute("SELECT timer_id, state, attempts, generation, detail FROM timers")
        for timer_id, state, attempts, generation, text in rows:
            detail = msgspec.json.decode(text, type=Detail)
            yield StoredTimer(
                timer_id=timer_id,
                delivery_id=detail.delivery_id,
                generation=generation,
                state=state,
                attempts=attempts,
                at_most_once=detail.delivery is Delivery.AT_MOST_ONCE,
                reason=detail.last_outcome.detail if detail.last_outcome else "",
            )
        names = {_DEFAULT.key_of(timer_id).uuid: timer_id for timer_id in timer_ids}
        for uuid, text in connection.execute("SELECT uuid, document FROM history ORDER BY started_at, attempt"):
            attempt = msgspec.json.decode(text, type=Attempt)
            yield StoredAttempt(
                timer_id=names[uuid],
                delivery_id=attempt.delivery_id,
                attempt=attempt.attempt,
                outcome=attempt.outcome,
                next=attempt.next,
            )
    finally:
        connection.close()


def report_on(entries: Sequence[AnyEntry], *, calm: bool = False) -> Report:
    arrivals = [entry for entry in entries if isinstance(entry, Arrival)]
    return Report(
        violations=check(entries, calm=calm),
        operations=Counter(f"{e.verb} {e.outcome}" for e in entries if isinstance(e, Operation)),
        arrivals=len(arrivals),
        repeats=len(arrivals) - len({(a.delivery_id) for a in arrivals}),
        crashes=Counter(entry.how for entry in entries if isinstance(entry, Crash)),
        parked=sum(isinstance(entry, StoredTimer) for entry in entries),
    )
