"""How long a server asks to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_ms(value: str, now: int) -> int:
    """Retry-After as seconds or as a date; 0 when there is none or it makes no sense."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:10]), 31_536_000) * 1000
    try:
        at: datetime = parsedate_to_datetime(value)
        if at.tzinfo is None:  # "-0000": of a zone that nobody knows
            at = at.replace(tzinfo=UTC)
        return max(0, round(at.timestamp() * 1000) - now)
    except (ValueError, TypeError, OverflowError):
        return 0
