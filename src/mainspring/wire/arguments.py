"""What a program says in Python, as the message that the API would get: with the same checks, told in its own words.

Types are checked before anything is written as JSON, where an instant is text, and bytes are, too. The errors of a
refusal point to the fields of the message, like those of the API; its text names the arguments of the program.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mainspring.errors import FieldError, InvalidInput
from mainspring.wire.strict_json import MAX_FIELD_ERRORS, decode, encode, listed, problems, struct_in

M = TypeVar("M", bound=msgspec.Struct)
T = TypeVar("T")

_NEITHER_TEXT_NOR_NUMBER: Final = (bytes, bytearray, memoryview, date, datetime, time, timedelta, Decimal, UUID)


def request(message: type[M], said: Mapping[str, object], names: Mapping[str, str] | None = None) -> M:
    """`said` has values by the names of the message's fields, `UNSET` where nothing was said.

    `names` are those that fields have as arguments of the program, where they differ: `{"execute_at": "at"}`. The first
    that fits counts.
    """
    wire = _wire_names(message)
    document = {wire.get(name, name): value for name, value in said.items() if value is not UNSET}
    try:
        if not _instant_problems(document, message):
            return decode(encode(_judge(document, message), "arguments"), message)
        errors = _all_problems(document, message)
    except msgspec.ValidationError:
        errors = _all_problems(document, message)
    except InvalidInput as error:
        if not error.errors:
            raise
        errors = [*error.errors]
    raise _refusal(errors, message, names or {})


def given(value: T | None) -> T | UnsetType:
    """What was said, if None says nothing."""
    return UNSET if value is None else value


def check_number(name: str, value: object, *, least: float, most: float) -> None:
    """Refuse what is no number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(f"Expected {name} from {least:.15g} to {most:.15g}, got {value!r:.100}")


def json_of(value: object, name: str) -> Raw:
    """Any JSON-like value, for a field that takes it as it is; a `Raw` is passed on byte for byte."""
    return Raw(encode(value, name))


def _judge(value: object, expected: Any) -> Any:
    return msgspec.convert(value, expected, builtin_types=_NEITHER_TEXT_NOR_NUMBER)


def _all_problems(document: Mapping[str, object], message: type[msgspec.Struct]) -> list[FieldError]:
    """Every wrong argument."""
    wrong = _instant_problems(document, message)
    pointers = {error.pointer for error in wrong}
    others = (error for error in problems(_plain(document), message, _judge) if error.pointer not in pointers)
    return [*wrong, *others][:MAX_FIELD_ERRORS]


def _plain(value: object) -> object:
    """Other mappings and sequences as dicts and lists, whose parts can be told apart."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _instant_problems(document: Mapping[str, object], message: type[msgspec.Struct]) -> list[FieldError]:
    """The API also reads milliseconds; in a program, a number may be anything, such as seconds."""
    found: list[FieldError] = []
    for name in _instants(message):
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, datetime):
            found.append(FieldError(f"/{name}", f"Expected a datetime, got {value!r:.100}"))
        elif value.utcoffset() is None:
            found.append(FieldError(f"/{name}", f"Expected a datetime with a time zone, got {value.isoformat()}"))
    return found


def _refusal(errors: list[FieldError], message: type[msgspec.Struct], names: Mapping[str, str]) -> InvalidInput:
    def argument(pointer: str) -> str:
        path = _path(pointer, message)
        known = next((known for known in names if f"{path}.".startswith(f"{known}.")), None)
        return path if known is None else f"{names[known]}{path[len(known) :]}".lstrip(".")

    return InvalidInput(listed(errors, argument), errors=tuple(errors))


def _path(pointer: str, message: type[msgspec.Struct]) -> str:
    """`/retryPolicy/maxAttempts` as `retry_policy.max_attempts`."""
    steps: list[str] = []
    struct: type[msgspec.Struct] | None = message
    for step in pointer.split("/")[1:]:
        fields = () if struct is None else msgspec.structs.fields(struct)
        field = next((field for field in fields if field.encode_name == step), None)
        steps.append(step if field is None else field.name)
        struct = None if field is None else struct_in(field.type)
    return ".".join(steps)


@functools.cache
def _wire_names(message: type[msgspec.Struct]) -> Mapping[str, str]:
    return dict(zip(message.__struct_fields__, message.__struct_encode_fields__, strict=True))


@functools.cache
def _instants(message: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(message) if _holds_instant(field.type))


def _holds_instant(expected: Any) -> bool:
    return expected is datetime or any(map(_holds_instant, typing.get_args(expected)))
