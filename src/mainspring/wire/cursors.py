"""Opaque page cursors: a value as base64 of JSON. One that is not ours is the caller's mistake."""

from __future__ import annotations

import base64
from typing import TypeVar

import msgspec

from mainspring.errors import FieldError, InvalidInput

T = TypeVar("T")


def write(value: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def read(cursor: str, kind: type[T]) -> T:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        value = msgspec.json.decode(text, type=kind)
        if not _is_storable(value):
            raise ValueError("no store has such a place")
    except ValueError as error:  # base64, ASCII and JSON all raise it
        detail = "Expected a cursor from an earlier page, got something else"
        raise InvalidInput(detail, errors=(FieldError("/cursor", detail),)) from error
    return value


def _is_storable(value: object) -> bool:
    """Numbers of 64 bits, and text without NUL: a database would refuse even to compare with anything else."""
    if isinstance(value, tuple):
        return all(map(_is_storable, value))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, str) or "\0" not in value
