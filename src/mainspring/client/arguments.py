"""What callers say in Python, as a part of a message that they put together themselves."""

from __future__ import annotations

from msgspec import Raw

from mainspring.wire.arguments import json_of


def to_payload(value: object) -> Raw:
    """Any JSON-like value as the payload of a message; a `Raw` is passed on byte for byte."""
    return json_of(value, "a payload")
