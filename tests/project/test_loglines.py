"""A log line is one line, whatever is in it."""

from __future__ import annotations

import json
import logging

import pytest

from mainspring import telemetry
from mainspring.idempotency.replays import WINDOW_SECONDS, Replays
from mainspring.loglines import Line, handler

SAID = "a\nb\x1b[2J\x9b\u202ec\ud800ü"


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_others_have_said_cannot_end_a_line_or_move_the_cursor(style: str) -> None:
    formatter = handler(style).formatter  # type: ignore[arg-type]
    assert formatter is not None
    said = Line(f"said {SAID}", {"reason": SAID})
    record = logging.LogRecord("mainspring", logging.WARNING, "", 0, said, None, None)
    line = formatter.format(record)
    assert line.isprintable()
    assert "ü" in line
    if style == "json":
        assert json.loads(line)["reason"] == SAID


def test_a_handler_that_knows_nothing_of_fields_loses_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mainspring"):
        telemetry.warning("message rejected", subscriber="orders", key="k-1", reason=SAID)
    [record] = caplog.records
    text = logging.Formatter("%(levelname)s %(message)s").format(record)
    assert text.startswith("WARNING message rejected  subscriber=orders key=k-1 reason=a\\nb")
    assert text.isprintable()
    assert vars(record)["fields"] == {"subscriber": "orders", "key": "k-1", "reason": SAID}
    assert record.filename == "test_loglines.py"


def test_the_lines_of_idempotency_have_their_fields_in_a_plain_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    replays = Replays("orders", monotonic=lambda: now[0])
    for _ in range(200):
        replays.count_replay()
    now[0] = WINDOW_SECONDS
    with caplog.at_level(logging.INFO, "mainspring"):
        replays.count_replay()
    assert "somebody is sending things twice  scope=orders calls=201 replays=201" in caplog.text


def test_an_error_is_followed_by_where_it_was_raised(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("why")
    except ValueError as raised:
        error = raised
        telemetry.exception("handled", name="a")
    telemetry.exception("told later", error, name="b")
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [error, error]
    assert "handled  name=a" in caplog.text
