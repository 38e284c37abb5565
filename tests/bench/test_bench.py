"""The benchmarks work. On tiny sizes, and without a look at the clock: what they measure here means nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw
import msgspec
import pytest
from bench.__main__ import BENCHMARKS
from bench.cluster import cluster
from bench.databases import databases
from bench.figures import COLUMNS, Aim, Figure, Setting, as_json, cells, markdown
from bench.load import ask, post, run_load
from bench.processes import busy_seconds, echo, processor_seconds
from bench.relay import Frames, Turns, relay
from bench.scale_large import fill_file, scale_large
from bench.sink import RunningSink, sink
from bench.timers import create_body


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
async def test_a_benchmark_measures_something(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    figures = await BENCHMARKS[name](Setting(tmp_path, True, said.append))
    assert figures
    assert said
    assert all(figure.measured >= 0 for figure in figures)


@pytest.mark.slow
async def test_without_servers_sqlite_is_measured_by_itself(tmp_path: Path) -> None:
    figures = await databases(Setting(tmp_path, True, lambda _: None), names=())
    assert {figure.benchmark for figure in figures} == {"sqlite"}
    assert all(figure.measured > 0 and figure.limit is None for figure in figures)


@pytest.mark.slow
@pytest.mark.usefixtures("postgresql")
async def test_a_database_is_measured_beside_sqlite_and_its_round_trips_are_counted(tmp_path: Path) -> None:
    figures = await databases(Setting(tmp_path, True, lambda _: None), names=["postgresql"])
    measured = [figure for figure in figures if figure.benchmark == "postgresql"]
    assert sum(figure.limit is not None for figure in measured) == 5
    [alone] = [figure.measured for figure in measured if figure.what.endswith("alone")]
    assert alone > 3  # a create, a load, a begin and a finish


@pytest.mark.slow
@pytest.mark.usefixtures("postgresql")
async def test_many_pending_timers_are_measured_beside_few_on_two_databases(tmp_path: Path) -> None:
    figures = await scale_large(Setting(tmp_path, True, lambda _: None))
    assert {figure.benchmark for figure in figures} == {"sqlite", "postgresql"}
    assert all(figure.measured >= 0 for figure in figures)


async def test_a_file_is_filled_with_as_many_timers_as_asked_for(tmp_path: Path) -> None:
    said: list[str] = []
    await fill_file(tmp_path, 11, said.append)
    assert said
    connection = apsw.Connection(str(tmp_path / "mainspring.db"))
    assert connection.execute("SELECT count(*), count(DISTINCT due_at) FROM timers").fetchall() == [(11, 11)]
    connection.close()


@pytest.mark.slow
@pytest.mark.usefixtures("postgresql")
async def test_two_instances_are_measured_against_one(tmp_path: Path) -> None:
    figures = await cluster(Setting(tmp_path, True, lambda _: None))
    assert sum(figure.ratio is not None for figure in figures) == 2
    assert all(figure.measured > 0 for figure in figures)


async def test_a_relay_passes_everything_on_and_counts_round_trips(tmp_path: Path) -> None:
    async with echo(tmp_path) as target, relay(target.port) as between:
        result = await run_load("127.0.0.1", between.port, lambda _: post("/", b"{}"), 3, 20.0, requests=20)
        assert (result.requests, result.errors) == (20, 0)
        assert between.round_trips == 20


def test_data_in_pieces_is_one_round_trip_until_there_is_an_answer() -> None:
    turns = Turns()
    turns.asked(b"SELECT")
    turns.asked(b" 1")
    turns.answered()
    turns.answered()
    turns.asked(b"SELECT 2")
    assert turns.count == 2


@pytest.mark.parametrize("size", [1, 5, 9, 11, 1000])
def test_requests_are_counted_however_their_frames_are_cut(size: int) -> None:
    def frame(opcode: int, body: bytes) -> bytes:
        return bytes([4, 0, 0, 7, opcode]) + len(body).to_bytes(4, "big") + body

    options, query, execute, batch = 0x05, 0x07, 0x0A, 0x0D
    stream = frame(options, b"") + frame(query, b"q" * 30) + frame(execute, b"") + frame(batch, b"b" * 300)
    frames = Frames()
    for start in range(0, len(stream), size):
        frames.asked(stream[start : start + size])
    assert frames.count == 3


def test_the_processor_time_of_a_process_and_of_the_machine_is_known() -> None:
    assert 0 < processor_seconds(os.getpid()) < busy_seconds()


async def test_the_load_generator_counts_answers_and_stops_at_its_limit(tmp_path: Path) -> None:
    async with echo(tmp_path) as target:
        result = await run_load("127.0.0.1", target.port, lambda _: post("/", b"{}"), 3, 20.0, requests=20)
        assert (result.requests, result.errors) == (20, 0)
        assert 0 < result.p50_ms <= result.p99_ms
        assert (await ask("127.0.0.1", target.port, post("/", b'{"a":1}'))).body == b'{"a":1}'
        assert target.memory_mb() > 1


async def test_a_sink_counts_from_its_last_reset_on() -> None:
    async with sink() as target:
        await _call(target, 3)
        assert (await target.report()).count == 3
        await target.reset()
        await _call(target, 2)
        report = await target.wait_for(2, seconds=20)
        assert report.count == 2
        assert report.last_at_ms > 0


async def test_a_timed_sink_notes_how_late_requests_are() -> None:
    async with sink(timed=True) as target:
        await _call(target, 1, b"mainspring-scheduled-at: 1000\r\n")
        [late] = (await target.report()).lateness_ms
        assert late > 1_000_000


async def test_a_slow_sink_notes_how_many_requests_waited_at_once() -> None:
    async with sink(delay_seconds=0.2) as target:
        await asyncio.gather(_call(target, 1), _call(target, 1), _call(target, 1))
        assert (await target.report()).most_at_once > 1


async def _call(target: RunningSink, times: int, header: bytes = b"") -> None:
    request = b"POST /callback HTTP/1.1\r\n" + header + b"content-length: 0\r\n\r\n"
    for _ in range(times):
        answer = await ask("127.0.0.1", target.port, request)
        assert answer.status == 200


def test_an_aim_is_met_by_the_figure_or_by_its_ratio_to_the_limit() -> None:
    at_least_half = Aim("ratio", "least", 0.5)
    assert _figure(60, 100, at_least_half).met is True
    assert _figure(40, 100, at_least_half).met is False
    assert _figure(40, None, Aim("measured", "most", 40)).met is True
    assert _figure(41, None, Aim("measured", "most", 40)).met is False
    assert _figure(41, None, None).met is None


def test_figures_are_shown_as_a_table_and_as_json() -> None:
    figures = [_figure(12_345.6, 20_000, Aim("ratio", "least", 0.7)), _figure(0, None, None)]
    assert cells(figures[0]) == ("b", "w", "12,346 /s", "20,000", "0.62", "ratio ≥ 0.70", "NO")
    assert len(markdown(figures).splitlines()) == 4
    assert all(line.count("|") == len(COLUMNS) + 1 for line in markdown(figures).splitlines())
    told = msgspec.json.decode(as_json(figures, "a machine"))
    assert [figure["met"] for figure in told["figures"]] == [False, None]


def test_the_timers_of_the_benchmarks_are_json() -> None:
    assert msgspec.json.decode(create_body("a", 1, "http://127.0.0.1/"))["executeAt"] == 1


def _figure(measured: float, limit: float | None, aim: Aim | None) -> Figure:
    return Figure(benchmark="b", what="w", unit="/s", measured=measured, limit=limit, aim=aim)
