"""What a log line looks like: one line, whoever's words are in it."""

from __future__ import annotations

import logging
from typing import Final

_LINE: Final = "%(asctime)s %(levelname)-7s %(name)s [%(correlation_id)s] %(message)s"


def formatter() -> logging.Formatter:
    return _OneLine(_LINE)


class _OneLine(logging.Formatter):
    """What cannot be printed is written as its number. A traceback keeps its lines, but none of them begins as a record
    does."""

    def format(self, record: logging.LogRecord) -> str:
        lines = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        return "\n  ".join(map(_printable, (self.formatMessage(record), *lines)))


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
