"""Opaque page cursors: a value as base64 of JSON. What does not decode is the caller's mistake."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from mainspring.errors import FieldError, InvalidInput

T = TypeVar("T")


def write(value: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def read(cursor: str, kind: type[T]) -> T:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        return msgspec.json.decode(text, type=kind)
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, msgspec.ValidationError) as error:
        detail = "Expected a cursor from an earlier page, got something else"
        raise InvalidInput(detail, errors=(FieldError("/cursor", detail),)) from error
