"""The fixture `mainspring`, as pytest finds it in a project that has the package installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed_plugin import run_tests

pytestmark = pytest.mark.slow  # a pytest of its own takes its time

TESTS = """
import asyncio
from datetime import UTC, datetime

import pytest


def test_a_sync_test(mainspring):
    mainspring.client().timers.create("a", callback_url="https://shop.example/", delay_seconds=7200)
    assert mainspring.advance(hours=1) == []
    assert len(mainspring.advance(hours=1)) == 1


def test_each_test_has_its_own(mainspring):
    assert mainspring.client().timers.list().timers == ()


def test_a_test_that_runs_a_loop(mainspring):
    async def main():
        client = mainspring.async_client()
        await client.timers.create("a", callback_url="https://shop.example/", delay_seconds=7200)
        await asyncio.to_thread(mainspring.advance, hours=2)
        return (await client.timers.history("a")).attempts

    assert [attempt.outcome for attempt in asyncio.run(main())] == ["succeeded"]


@pytest.mark.mainspring(at="2026-12-24T17:00:00+01:00", host_limit=1)
def test_the_marker_says_when_time_starts(mainspring):
    assert mainspring.now() == datetime(2026, 12, 24, 16, tzinfo=UTC)
"""
ASYNC_TEST = """
import pytest


@pytest.mark.anyio
async def test_an_async_test(mainspring):
    client = mainspring.async_client()
    await client.timers.create("a", callback_url="https://shop.example/", delay_seconds=7200)
    assert len(mainspring.advance(hours=2)) == 1
"""
WRONG_MARKERS = """
import pytest


@pytest.mark.mainspring("2026-12-24T17:00:00Z")
def test_an_instant_without_its_name(mainspring):
    pass


@pytest.mark.mainspring(att="2026-12-24T17:00:00Z")
def test_a_wrong_name(mainspring):
    pass
"""


def test_a_mistake_in_the_marker_is_an_error(tmp_path: Path) -> None:
    told = run_tests(tmp_path, WRONG_MARKERS)
    assert "2 errors" in told, told
    assert "Expected arguments with names" in told, told
    assert "did you mean 'at'?" in told, told


def test_sync_tests_need_no_other_plugin(tmp_path: Path) -> None:
    told = run_tests(tmp_path, TESTS, "-p", "no:anyio")
    assert "4 passed" in told, told


def test_async_tests_use_it_under_their_own_plugin(tmp_path: Path) -> None:
    told = run_tests(tmp_path, ASYNC_TEST, "-k", "asyncio")
    assert "1 passed" in told, told


def test_the_plugin_itself_loads_nothing_of_mainspring(tmp_path: Path) -> None:
    text = (
        "import sys\n\ndef test_nothing():\n    assert not [n for n in sys.modules if n.startswith('mainspring.t')]\n"
    )
    told = run_tests(tmp_path, text)
    assert "1 passed" in told, told
