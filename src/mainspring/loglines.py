"""What a log line looks like: text on a terminal, JSON elsewhere; under any other handler, text that has its fields."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from mainspring.text import printable, printable_json


class Line:
    """A message and its fields. As text it has both, so that a logger that knows nothing of fields loses none."""

    __slots__ = ("fields", "message")

    def __init__(self, message: str, fields: Mapping[str, object]) -> None:
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        shown = " ".join(f"{key}={printable(str(value))}" for key, value in self.fields.items())
        return f"{printable(self.message)}  {shown}" if shown else printable(self.message)


def handler(style: Literal["auto", "text", "json"]) -> logging.Handler:
    """Writes to standard error."""
    made = logging.StreamHandler(sys.stderr)
    made.setFormatter(_TextFormatter() if is_text(style) else _JsonFormatter())
    return made


def is_text(style: Literal["auto", "text", "json"]) -> bool:
    return style == "text" or (style == "auto" and sys.stderr.isatty())


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        lines = self.formatException(record.exc_info).split("\n") if record.exc_info else ()
        trace = "".join(f"\n{printable(line)}" for line in lines)
        return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {_said(record)}{trace}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = _said(record)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "message": said.message,
            **{key: _json_value(value) for key, value in said.fields.items()},
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


def _said(record: logging.LogRecord) -> Line:
    return record.msg if isinstance(record.msg, Line) else Line(record.getMessage(), {})


def _json_value(value: object) -> object:
    """Numbers, truth and lists as they are, anything else as text: a log line never fails."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(part) for part in value]
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
