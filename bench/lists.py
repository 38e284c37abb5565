"""Whether lists take longer among a million pending timers than among ten thousand."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from bench.figures import Aim, Figure, Setting
from bench.scale import MONTH_MS, fill
from bench.timers import FAR_MS, now_ms, pending_timer
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.model import FOREVER, State
from mainspring.store import Put
from mainspring.timers.messages import ListTimers
from mainspring.wire.instants import to_instant

RARE = 10
"""So many timers are parked, and so many have the label and the id that are looked for."""


async def lists(setting: Setting) -> list[Figure]:
    """Lists of a few timers among few and among many, in turn, as a request gets them."""
    few, many = setting.size(10_000, 1_000), setting.size(1_000_000, 10_000)
    places = {few: setting.directory / "few", many: setting.directory / "many"}
    for pending, place in places.items():
        setting.say(f"filling in {pending:,} timers")
        await fill(place, pending)
        await _add_rare(place)
    middle = to_instant(now_ms() + FAR_MS + MONTH_MS // 2)
    requests = {
        "those that are parked": ListTimers(states=(State.PARKED,)),
        "the first from an instant on": ListTimers(due_from=middle),
        "all by a label": ListTimers(labels={"kind": "rare"}),
        "all by the start of their ids": ListTimers(id_prefix="rare-"),
    }
    pages: dict[tuple[int, str], list[float]] = {(pending, what): [] for pending in places for what in requests}
    wholes: dict[tuple[int, str], list[float]] = {key: [] for key in pages}
    for turn in range(setting.size(5, 1)):
        for pending, place in places.items():
            setting.say(f"round {turn + 1} with {pending:,} pending")
            async with _instance(place) as instance:
                for what, request in requests.items():
                    times = await _read(instance, request, whole=what.startswith("all"))
                    pages[pending, what].append(max(times))
                    wholes[pending, what].append(sum(times))
    figures = []
    for what in requests:
        limit = 1000 * median(wholes[few, what])
        aim = Aim("measured", "most", 1000) if what == "those that are parked" else None
        figures.append(_figure(f"{what}, of {many:,} (limit: {few:,})", 1000 * median(wholes[many, what]), limit, aim))
        if what.startswith("all"):
            longest = 1000 * median(pages[many, what])
            figures.append(_figure(f"the longest request of it ({what})", longest, None, Aim("measured", "most", 1000)))
    return figures


def _figure(what: str, measured: float, limit: float | None, aim: Aim | None) -> Figure:
    return Figure(benchmark="lists", what=what, unit="ms", measured=measured, limit=limit, aim=aim)


async def _read(instance: Instance, request: ListTimers, *, whole: bool) -> list[float]:
    """The seconds of each request until the first page is there, or the whole list."""
    times: list[float] = []
    while True:
        started_at = time.perf_counter()
        page = await instance.timers.list(request)
        times.append(time.perf_counter() - started_at)
        if page.next_cursor is None or not whole:
            return times
        request = replace(request, cursor=page.next_cursor)


def _instance(directory: Path) -> Instance:
    return Instance(Config(allow_loopback=True, data_dir=str(directory), log_level="error"))


async def _add_rare(directory: Path) -> None:
    async with _instance(directory) as instance:
        namespace = await instance.namespaces.find("default")
        first = now_ms() + FAR_MS
        puts = []
        for index in range(RARE):
            parked = pending_timer(namespace, f"parked-{index}", first)
            puts.append(Put(replace(parked, state=State.PARKED, due_at=FOREVER), 0))
            row = pending_timer(namespace, f"rare-{index}", first + index * MONTH_MS // RARE)
            puts.append(Put(replace(row, detail=replace(row.detail, labels={"kind": "rare"})), 0))
        await instance.store.write(puts)
