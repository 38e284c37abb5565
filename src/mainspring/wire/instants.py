"""Instants on the wire: read as RFC 3339 with an offset or as epoch milliseconds, written as RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

LAST_INSTANT = 253_402_300_799_999
"""The end of the year 9999. A stored instant lies between 0 and this, however it was written."""


Instant = Annotated[datetime, Meta(tz=True)] | Annotated[int, Meta(ge=0, le=LAST_INSTANT)]


Delay = Annotated[float, Meta(ge=0, le=3_155_760_000)]


@lru_cache(maxsize=4096)  # a timer shows an instant up to four times, and a batch shares its creation instant
def to_instant(ms: int) -> datetime:
    """As it is shown. A row may hold an instant that no calendar has: it is shown as the nearest one that exists."""
    return datetime.fromtimestamp(min(max(ms, 0), LAST_INSTANT) / 1000, UTC)


def to_ms(instant: datetime | int) -> int:
    return instant if isinstance(instant, int) else round(instant.timestamp() * 1000)
