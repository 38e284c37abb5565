"""What logs and metrics look like to the programs that read them."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest

from mainspring import telemetry
from mainspring.telemetry import Counter, render_metrics


def _refuse(text: str) -> NoReturn:
    raise AssertionError(f"Expected JSON, got {text}")


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, Any]]]:
    logger = logging.getLogger("mainspring")
    before = logger.handlers[:], logger.level, logger.propagate
    written = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", written)
        telemetry.set_up_logging("debug", "json")

    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(written.getvalue(), parse_constant=_refuse)
        return found

    yield read
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_a_json_line_has_its_time_in_utc(line: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    telemetry.info("hello")
    written = str(line()["time"])
    assert written.endswith("Z")
    assert abs(datetime.fromisoformat(written) - datetime.now(UTC)) < timedelta(minutes=1)


def test_numbers_truth_and_lists_keep_their_kind_in_json(line: Callable[[], dict[str, Any]]) -> None:
    telemetry.warning(
        "x", n=3, share=0.5, on=True, none=None, text="7", list=["a", 1], odd=float("inf"), kind=ValueError
    )
    found = line()
    assert (found["n"], found["share"], found["on"], found["none"], found["text"]) == (3, 0.5, True, None, "7")
    assert found["list"] == ["a", 1]
    assert found["odd"] == "inf"
    assert found["kind"] == "<class 'ValueError'>"
    assert (found["level"], found["message"]) == ("warning", "x")


def test_a_counter_without_a_label_starts_at_zero_and_one_with_a_label_without_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "_metrics", [])
    Counter("plain_total", "Plain.")
    labelled = Counter("labelled_total", "Labelled.", "fate")
    samples = [row for row in render_metrics({}).splitlines() if not row.startswith("#")]
    assert samples == ["plain_total 0"]
    labelled.add("lost")
    assert 'labelled_total{fate="lost"} 1' in render_metrics({}).splitlines()
