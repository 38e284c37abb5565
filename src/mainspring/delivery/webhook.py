"""A signed call: what every receiver gets besides the body, and how long it may ask to be left alone.

All calls of one delivery carry the same id, as `webhook-id` and `Idempotency-Key`: it identifies a repeat.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import mainspring
from mainspring.delivery.signatures import sign

CORRELATION_ID: Final = "x-correlation-id"
"""Names what several requests and calls belong to, for whoever reads the logs of all of them."""
CORRELATION_LIMIT: Final = 128


def correlation_in(headers: Mapping[str, str]) -> str:
    """The correlation id among the headers of a call, as far as it is repeated in a log; empty if there is none."""
    return next((value[:CORRELATION_LIMIT] for name, value in headers.items() if name.lower() == CORRELATION_ID), "")


def new_delivery_id(randomness: random.Random) -> str:
    return f"msg_{randomness.getrandbits(128):032x}"


def new_span_id(randomness: random.Random) -> str:
    return f"{randomness.getrandbits(64) or 1:016x}"


def signed_headers(
    secrets: Sequence[str], *, delivery_id: str, body: bytes, attempt: int, now: int
) -> tuple[tuple[str, str], ...]:
    """Who calls, which delivery it is, and that the secrets vouch for both."""
    timestamp = now // 1000
    return (
        ("user-agent", f"mainspring/{mainspring.__version__}"),
        ("webhook-id", delivery_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", sign(secrets, message_id=delivery_id, timestamp=timestamp, body=body)),
        ("idempotency-key", delivery_id),
        ("mainspring-attempt", str(attempt)),
    )


def retry_after_ms(value: str, now: int) -> int:
    """Retry-After as seconds or as a date; 0 when there is none or it makes no sense."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:10]), 31_536_000) * 1000
    try:
        at: datetime = parsedate_to_datetime(value)
        if at.tzinfo is None:  # "-0000": the zone is unknown
            at = at.replace(tzinfo=UTC)
        return max(0, round(at.timestamp() * 1000) - now)
    except (ValueError, TypeError, OverflowError):
        return 0
