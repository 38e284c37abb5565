"""What a log line looks like: text on a terminal, JSON elsewhere."""

from __future__ import annotations

import json
import logging
import math
import sys
from datetime import UTC, datetime
from typing import Literal

from mainspring.text import printable, printable_json


def handler(style: Literal["auto", "text", "json"]) -> logging.Handler:
    """Writes to standard error."""
    made = logging.StreamHandler(sys.stderr)
    made.setFormatter(_TextFormatter() if is_text(style) else _JsonFormatter())
    return made


def is_text(style: Literal["auto", "text", "json"]) -> bool:
    return style == "text" or (style == "auto" and sys.stderr.isatty())


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={printable(str(value))}" for key, value in getattr(record, "fields", {}).items())
        message = printable(record.getMessage())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {message}"
        lines = self.formatException(record.exc_info).split("\n") if record.exc_info else ()
        trace = "".join(f"\n{printable(line)}" for line in lines)
        return f"{line}  {fields}{trace}" if fields else line + trace


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{key: _json_value(value) for key, value in getattr(record, "fields", {}).items()},
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


def _json_value(value: object) -> object:
    """Numbers, truth and lists as they are, anything else as text: a log line never fails."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(part) for part in value]
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
