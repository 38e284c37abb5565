"""Ten thousand jobs: how late they are when all are due at the same minute, and what they cost when none is due."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.creates import CONNECTIONS
from bench.figures import Aim, Figure, Setting
from bench.load import post
from bench.processes import TOKEN, Running, processor_seconds, server
from bench.quiet import kind_of, seeing_statements
from bench.sink import sink
from bench.timers import NOWHERE, create_all, now_ms
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.jobs.messages import CreateJob, RunsPage

PAGE = 1000
YEARLY = "0 0 1 1 *"
FEW = 100
AT_ONCE = 64


async def same_minute(setting: Setting) -> list[Figure]:
    """All jobs are due at each minute; what the ledger says of a few minutes, and what the sink has seen."""
    count, rounds = setting.size(10_000, 200), setting.size(3, 1)
    period, schedule = (60, "* * * * *") if not setting.quick else (5, "*/5 * * * * *")
    async with server(setting.directory) as product, sink(timed=True) as target:
        setting.say(f"creating {count:,} jobs")
        requests = [_create(f"job-{index:05}", schedule, target.url, seconds=setting.quick) for index in range(count)]
        await create_all(product, requests, connections=CONNECTIONS[0])
        late: list[list[int]] = []
        arrived: list[list[float]] = []
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}: {count:,} runs in one minute")
            minute = (now_ms() // 1000 // period + 1) * period
            if minute - time.time() < period / 4:  # still busy with the one before, or with the creates
                minute += period
            await asyncio.sleep(minute - time.time() - period / 4)
            await target.reset()
            await target.wait_for(count, seconds=period + 60)
            arrived.append(sorted((await target.report()).lateness_ms))
            await asyncio.sleep(period / 4)  # for the ends of the last runs
            late.append(sorted(await _lateness(product, minute * 1000)))
        resident, highest = product.memory_mb(), product.memory_mb("VmHWM")
    if {len(each) for each in late} != {count}:
        raise RuntimeError(f"Expected {count:,} runs of each minute in the ledger, got {list(map(len, late))}")
    what = f"of {count:,} jobs of one minute"
    return [
        Figure(benchmark="jobs", what=f"half at most late, {what}", unit="ms", measured=_median(late, 50)),
        Figure(
            benchmark="jobs",
            what=f"99 % at most late, {what}",
            unit="ms",
            measured=_median(late, 99),
            aim=Aim("measured", "most", 1000),
        ),
        Figure(benchmark="jobs", what=f"the latest {what}", unit="ms", measured=_median(late, 100)),
        Figure(
            benchmark="jobs",
            what="99 % arrived at the sink within",
            unit="ms",
            measured=_median(arrived, 99),
        ),
        Figure(benchmark="jobs", what=f"memory with {count:,} jobs", unit="MB", measured=resident),
        Figure(benchmark="jobs", what="highest memory", unit="MB", measured=highest),
    ]


def _median(rounds: Sequence[Sequence[float]], percent: int) -> float:
    """How late at most this many of a hundred are, in the median round."""
    return median(late[min(len(late) * percent // 100, len(late) - 1)] for late in rounds)


def _create(name: str, schedule: str, url: str, *, seconds: bool) -> bytes:
    body = msgspec.json.encode({"name": name, "schedule": schedule, "seconds": seconds, "url": url})
    return post("/v1/jobs/create", body, token=TOKEN)


async def _lateness(product: Running, instant: int) -> list[int]:
    """How late the runs of an instant began, by the ledger."""
    late: list[int] = []
    where: dict[str, object] = {"since": instant, "until": instant + 1, "limit": PAGE}
    while True:
        answer = await product.call("/v1/jobs/runs", where)
        page = msgspec.json.decode(answer.body, type=RunsPage)
        late += [run.late_ms for run in page.runs if run.state == "succeeded" and run.late_ms is not None]
        if page.next_cursor is None:
            return late
        where["cursor"] = page.next_cursor


async def idle_jobs(setting: Setting) -> list[Figure]:
    """The statements that reach SQLite in a minute while jobs wait, with many jobs and with few, and the processor."""
    many, seconds = setting.size(10_000, 300), setting.size(60, 2)
    places = {many: setting.directory / "many", FEW: setting.directory / "few"}
    for count, place in places.items():
        setting.say(f"creating {count:,} jobs")
        await _fill(place, count)
    async with server(places[many]) as product:
        setting.say(f"watching the processor for {seconds} s")
        await asyncio.sleep(setting.size(5, 1))
        before = processor_seconds(product.pid)
        await asyncio.sleep(seconds)
        share = (processor_seconds(product.pid) - before) / seconds
        memory = product.memory_mb()
    setting.say(f"watching the statements for {seconds} s")
    counted = {count: await _statements(place, seconds, setting) for count, place in places.items()}
    kinds = sorted(counted[many].keys() | counted[FEW].keys())
    per_minute = 60 / seconds
    return [
        Figure(
            benchmark="idle jobs",
            what=f"statements with {many:,} jobs (limit: {FEW})",
            unit="/min",
            measured=counted[many].total() * per_minute,
            limit=counted[FEW].total() * per_minute,
        ),
        Figure(
            benchmark="idle jobs",
            what="more statements for each job",
            unit="/min",
            measured=max(0, counted[many].total() - counted[FEW].total()) / (many - FEW) * per_minute,
            aim=Aim("measured", "most", 0.01),
        ),
        *(
            Figure(
                benchmark="idle jobs",
                what=f"of all: {kind}",
                unit="/min",
                measured=counted[many][kind] * per_minute,
                limit=counted[FEW][kind] * per_minute,
            )
            for kind in kinds
        ),
        Figure(benchmark="idle jobs", what="processor", unit="cores", measured=share),
        Figure(benchmark="idle jobs", what="memory", unit="MB", measured=memory),
    ]


async def _fill(directory: Path, count: int) -> None:
    async with Instance(Config(allow_loopback=True, data_dir=str(directory), log_level="error")) as instance:

        async def create(first: int) -> None:
            for index in range(first, count, AT_ONCE):
                await instance.jobs.create(CreateJob(name=f"job-{index:05}", schedule=YEARLY, url=NOWHERE))

        await asyncio.gather(*map(create, range(AT_ONCE)))


async def _statements(directory: Path, seconds: float, setting: Setting) -> Counter[str]:
    config = Config(allow_loopback=True, data_dir=str(directory), log_level="error")
    statements: Counter[str] = Counter()
    with seeing_statements(lambda sql: statements.update([kind_of(sql)])):
        async with Instance(config):
            # The instance before this one counts as a neighbour for as long as its lease would have run.
            await asyncio.sleep(1 if setting.quick else config.lease_seconds + 2 * config.renew_seconds)
            statements.clear()
            await asyncio.sleep(seconds)
            return statements.copy()
