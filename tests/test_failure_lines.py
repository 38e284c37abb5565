"""How many lines failures get, and what is said of those that get none."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from mainspring import failure_lines, telemetry
from mainspring.failure_lines import LINES, LINES_IN_ALL, WINDOW_SECONDS, FailureLines


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lines(time: Time) -> FailureLines:
    return FailureLines(time)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "mainspring"):
        yield caplog


def left_out(caplog: pytest.LogCaptureFixture) -> dict[object, object]:
    fields = [vars(record)["fields"] for record in caplog.records if "left out" in record.getMessage()]
    return {found["destination"]: found["count"] for found in fields}


def fail(lines: FailureLines, destination: str, times: int) -> None:
    for n in range(times):
        lines.tell("an attempt failed", timer_id=f"t{n}", destination=destination, reason="It is down.")


def test_each_failure_has_its_line_with_what_is_known_and_no_empty_fields(
    lines: FailureLines, said: pytest.LogCaptureFixture
) -> None:
    lines.tell("an attempt failed", timer_id="t", status=None, correlation_id="", destination="a:80", reason="Why.")
    [record] = said.records
    assert record.getMessage() == "an attempt failed  timer_id=t destination=a:80 reason=Why."
    fail(lines, "b:80", LINES)
    assert len(said.records) == 1 + LINES


def test_a_flood_to_one_destination_is_counted_and_takes_no_lines_from_others(
    lines: FailureLines, time: Time, said: pytest.LogCaptureFixture
) -> None:
    before = telemetry.failures_left_out.values.get("", 0)
    fail(lines, "a:80", LINES + 7)
    assert len(said.records) == LINES
    fail(lines, "b:80", 1)
    assert len(said.records) == LINES + 1
    assert left_out(said) == {}
    time.now += WINDOW_SECONDS
    lines.look()
    assert left_out(said) == {"a:80": 7}
    assert telemetry.failures_left_out.values[""] == before + 7
    said.clear()
    fail(lines, "a:80", 1)
    assert len(said.records) == 1


def test_a_flood_to_all_destinations_is_bounded_too(
    lines: FailureLines, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_lines, "COUNTED_APART", 3)
    for n in range(LINES_IN_ALL + 10):
        fail(lines, f"host-{n}:80", 1)
    assert len(said.records) == LINES_IN_ALL
    lines.close()
    found = left_out(said)
    assert len(found) == 4
    assert found["others"] == 7
    assert len(said.records) == LINES_IN_ALL + 4


def test_what_was_left_out_is_told_once(lines: FailureLines, time: Time, said: pytest.LogCaptureFixture) -> None:
    fail(lines, "a:80", LINES + 1)
    lines.close()
    said.clear()
    time.now += WINDOW_SECONDS
    lines.look()
    lines.close()
    assert said.records == []
