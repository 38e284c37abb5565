"""Instants for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import click
import pytest

from mainspring.cli.instants import clock_text, distance_text, go_by, instant_text
from mainspring.cli.parameters import MOMENT

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_an_instant_is_shown_in_local_time_with_how_far_away_it_is() -> None:
    assert instant_text(NOON, now=NOON - timedelta(minutes=5)) == "2026-12-01 13:00:00+01 (in 5 min)"
    summer = NOON.replace(month=7)
    assert instant_text(summer, now=summer + timedelta(hours=3)) == "2026-07-01 14:00:00+02 (3 h ago)"
    assert instant_text(None) == ""


def test_a_command_goes_by_the_clock_that_a_server_has_told_it_of() -> None:
    with click.Context(click.Command("timer")):
        go_by(NOON - timedelta(hours=3))
        assert instant_text(NOON).endswith("(in 3 h)")
    with click.Context(click.Command("timer")):
        assert instant_text(datetime.now(UTC)).endswith("(now)")


@pytest.mark.usefixtures("berlin")
def test_the_last_instant_there_is_has_a_text() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert instant_text(last, now=NOON).startswith("9999-12-31 23:59:59Z (in ")


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0, "12:00:00Z"), (1, "12:00:00+01"), (5.5, "12:00:00+05:30"), (-3.5, "12:00:00-03:30"), (-10, "12:00:00-10")],
)
def test_what_is_shown_can_be_pasted_into_an_option(hours: float, text: str) -> None:
    moment = NOON.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert clock_text(moment) == f"2026-12-01 {text}"
    assert MOMENT.convert(clock_text(moment), None, None) == moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "now"),
        (-0.4, "now"),
        (59.4, "in 59 s"),
        (59.9, "in 1 min"),
        (299.9, "in 5 min"),
        (-3599, "60 min ago"),
        (-3601, "1 h ago"),
        (47 * 3600, "in 47 h"),
        (-86_400 * 3, "3 days ago"),
        (86_400 * 3653, "in 10 years"),
    ],
)
def test_a_distance_is_told_in_the_unit_that_says_most(seconds: float, text: str) -> None:
    assert distance_text(seconds) == text.replace("60 min", "1 h")
