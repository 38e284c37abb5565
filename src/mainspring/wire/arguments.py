"""What a program says in Python, as the message that the API would get: with the same checks, told in its own words.

Types are checked before anything is written as JSON, where an instant is text, and bytes are, too. The errors of a
refusal point to the fields of the message, like those of the API; its text names the arguments of the program.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mainspring.errors import FieldError, InvalidInput
from mainspring.keywords import refuse_unknown
from mainspring.wire.strict_json import MAX_FIELD_ERRORS, decode, encode, listed, problems, struct_in

M = TypeVar("M", bound=msgspec.Struct)
T = TypeVar("T")

_NEITHER_TEXT_NOR_NUMBER: Final = (bytes, bytearray, memoryview, date, datetime, time, timedelta, Decimal, UUID)


def request(message: type[M], said: Mapping[str, object], names: Mapping[str, str] | None = None) -> M:
    """`said` has values by the names of the message's fields, `UNSET` where nothing was said.

    `names` are those that fields have as arguments of the program, where they differ: `{"execute_at": "at"}`. The first
    that fits counts. A name that is no field's is refused with TypeError.
    """
    wire = _wire_names(message)
    refuse_unknown(said, wire)
    document = {wire[name]: value for name, value in said.items() if value is not UNSET}
    try:
        if not _own_problems(document, message):
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
    wrong = _own_problems(document, message)
    pointers = {error.pointer for error in wrong}
    others = (error for error in problems(_plain(document), message, _judge) if error.pointer not in pointers)
    return [*wrong, *others][:MAX_FIELD_ERRORS]


def _plain(value: object) -> object:
    """Other mappings and sequences as dicts and lists, whose parts can be told apart."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _own_problems(document: Mapping[str, object], message: type[msgspec.Struct]) -> list[FieldError]:
    """What is wrong in Python only, or is said better in its words."""
    kinds = _kinds(message)
    found = ((name, _own_problem(value, kinds[name])) for name, value in document.items() if name in kinds)
    return [FieldError(f"/{name}", words) for name, words in found if words]


class _Kind(NamedTuple):
    """What a field takes, as far as it is told apart here."""

    is_instant: bool
    is_list: bool
    may_be_none: bool


def _own_problem(value: object, kind: _Kind) -> str:
    """The API also reads instants as milliseconds; in a program, a number may be anything, such as seconds."""
    if isinstance(value, timedelta):
        return "Expected a number of seconds, got a timedelta: use its total_seconds()"
    if kind.is_list and isinstance(value, str):
        return f"Expected a list such as [{value!r:.100}], got {value!r:.100}"
    if not kind.is_instant or (value is None and kind.may_be_none):
        return ""
    if not isinstance(value, datetime):
        return f"Expected a datetime, got {value!r:.100}"
    return "" if value.utcoffset() is not None else f"Expected a datetime with a time zone, got {value.isoformat()}"


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
def _kinds(message: type[msgspec.Struct]) -> Mapping[str, _Kind]:
    return {
        field.encode_name: _Kind(
            is_instant=datetime in (found := {*_alternatives(field.type)}),
            is_list=tuple in found,
            may_be_none=types.NoneType in found,
        )
        for field in msgspec.structs.fields(message)
    }


def _alternatives(expected: Any) -> Iterator[Any]:
    """The types that a value may have, without their parts."""
    origin = typing.get_origin(expected)
    if origin in (typing.Annotated, typing.Union, types.UnionType):
        for part in typing.get_args(expected):
            yield from _alternatives(part)
    elif isinstance(origin or expected, type):
        yield origin or expected
