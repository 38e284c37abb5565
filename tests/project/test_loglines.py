"""A log line is one line, whatever is in it."""

from __future__ import annotations

import json
import logging

import pytest

from mainspring.loglines import handler

SAID = "a\nb\x1b[2J\x9b\u202ec\ud800ü"


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_others_have_said_cannot_end_a_line_or_move_the_cursor(style: str) -> None:
    formatter = handler(style).formatter  # type: ignore[arg-type]
    assert formatter is not None
    record = logging.LogRecord("mainspring", logging.WARNING, "", 0, f"said {SAID}", None, None)
    record.fields = {"reason": SAID}
    line = formatter.format(record)
    assert line.isprintable()
    assert "ü" in line
    if style == "json":
        assert json.loads(line)["reason"] == SAID
