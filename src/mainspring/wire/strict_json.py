"""Strict JSON at the edge: bytes in, a typed message out, or `InvalidInput` that names every wrong field.

What JSON leaves open is settled here, for the whole body, `Raw` fields included, because payloads are passed on
byte for byte to parsers that we do not know: a key occurs once, text is UTF-8 without lone surrogates or NUL,
a number fits into 64 bits (or a finite double) and 100 characters, nesting ends at 32, the top level is an object.

The usual body is screened without looking at single values: it is decoded untyped and written again. A repeated key
gets lost on the way, and with it two quotation marks. Only a long run of digits needs a second reading.
Errors are explained field by field, and only when there are any.

A message with items that have results of their own (`tuple[Raw, ...]`) is screened without them. They are screened
when they are read: together, and one by one if that fails, so that one wrong item does not spoil the others.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from mainspring.errors import FieldError, InvalidInput, plain_words
from mainspring.text import did_you_mean

MAX_DEPTH: Final = 32
MAX_NUMBER_LENGTH: Final = 100
MAX_FIELD_ERRORS: Final = 100
MAX_PARTS: Final = 1000
"""This many elements of a wrong container are checked one by one."""

T = TypeVar("T", bound=msgspec.Struct)

_DIGITS_TO_ZERO: Final = bytes(ord("0") if chr(byte).isascii() and chr(byte).isdigit() else byte for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19  # 2**63 - 1 has 19 digits: with fewer in a row, an integer fits
_UNWRITABLE_TYPE: Final = re.compile(r"Encoding objects of type (.+) is unsupported")
_read = msgspec.json.Decoder().decode
_read_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write = msgspec.json.Encoder().encode


def decode(body: bytes, message: type[T]) -> T:
    """Read a request body. Raises `InvalidInput` and nothing else, whatever the bytes are."""
    items = _items_of(message)
    value = _screen_object(_without(items, body) if items else body)
    try:
        decoded: T = _decoder(message).decode(body)
    except msgspec.ValidationError as error:
        raise _explain(_screen_object(body) if items else value, message) from error
    return decoded


def decode_items(items: Sequence[msgspec.Raw], message: type[T]) -> Iterator[T | InvalidInput]:
    """Read the items of a message that `decode` has read; a wrong item becomes an error, its paths relative to it."""
    try:
        _screen(b"[" + b",".join(map(bytes, items)) + b"]")
        all_strict = True
    except InvalidInput:
        all_strict = False
    for item in items:
        try:
            if not all_strict:
                _screen(bytes(item))
            decoded: T | InvalidInput = _decoder(message).decode(item)
        except msgspec.ValidationError:
            decoded = _explain(_read(item), message)
        except InvalidInput as error:
            decoded = error
        yield decoded


def encode(value: object, what: str) -> bytes:
    """Write what a program gives, for `decode` to judge. Raises `InvalidInput` for what JSON cannot say."""
    try:
        written = _write(value)
        if b"null" in written:  # which msgspec writes for NaN and infinities
            _refuse_no_numbers(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"Expected {what} that can be written as JSON, got {_unwritable(error)}") from error
    return written


def check_value(text: bytes) -> None:
    """Raise `InvalidInput` unless this is one JSON value that a request might have held."""
    _screen_object(b'{"":' + text + b"}")


@functools.cache
def _decoder(message: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(message)


@functools.cache
def _items_of(message: type[msgspec.Struct]) -> str:
    """The name of the field whose items are read one by one, if the message has one."""
    types = typing.get_type_hints(message)
    fields = msgspec.structs.fields(message)
    return next((field.encode_name for field in fields if types[field.name] == tuple[msgspec.Raw, ...]), "")


def _without(name: str, body: bytes) -> bytes:
    """The body with nothing in this array. If there is none, or no way to tell, the whole body is judged."""
    try:
        array = bytes(_read_parts(body)[name])
    except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    if not array.startswith(b"["):
        return body
    if body.endswith(array + b"}"):  # as most do; searching for something that long takes long
        return body[: -len(array) - 1] + b"[]}"
    return body.replace(array, b"[]", 1)


def _screen_object(body: bytes) -> dict[str, Any]:
    """The body as plain values, when it is strict JSON with an object at the top."""
    if not body.strip():
        raise InvalidInput("Expected a JSON object, got an empty body")
    value = _screen(body)
    if type(value) is not dict:
        raise InvalidInput(f"Expected a JSON object, got {_kind(value)}")
    return value


def _screen(body: bytes) -> Any:
    """The body as plain values, when it is strict JSON."""
    try:
        value = _read(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected JSON in UTF-8, got: {_reason(error)}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deep(value):
        raise _too_deep()
    written = _write(value)
    if b"\\" not in body:
        repeated = body.count(b'"') != written.count(b'"')
    else:
        # Without its escaped backslashes, a backslash in front of a character always escapes that character.
        sent, written = body.replace(rb"\\", b""), written.replace(rb"\\", b"")
        if rb"\u0000" in sent:
            raise InvalidInput(r"Expected text without NUL, got \u0000")
        repeated = sent.count(b'"') - sent.count(rb"\"") != written.count(b'"') - written.count(rb"\"")
    if repeated:
        raise _repeated_key(body)
    if _LONG_NUMBER in body.translate(_DIGITS_TO_ZERO):
        json.loads(body, parse_int=_check_integer, parse_float=_check_length)
    return value


def _unwritable(error: Exception) -> str:
    """What kept a value from being written, without the words of the library that wrote it."""
    if isinstance(error, RecursionError):
        return f"more than {MAX_DEPTH} levels of nesting, or a value that contains itself"
    if isinstance(error, OverflowError):
        return "a number of more than 64 bits"
    if isinstance(error, UnicodeEncodeError):
        return "text that is not valid Unicode"
    if named := _UNWRITABLE_TYPE.fullmatch(str(error)):
        return f"a value of the type {named[1]}"
    return "an object whose keys are not text" if "keys" in str(error) else str(error)


def _refuse_no_numbers(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the number {value}")
    if isinstance(value, Mapping):
        value = (*value.keys(), *value.values())
    elif isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _refuse_no_numbers(part)


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else typing.cast(list[object], parent))
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _too_deep() -> InvalidInput:
    return InvalidInput(f"Expected at most {MAX_DEPTH} levels of nesting, got more")


def _check_length(number: str) -> None:
    if len(number) > MAX_NUMBER_LENGTH:
        raise InvalidInput(f"Expected numbers of at most {MAX_NUMBER_LENGTH} characters, got {len(number)}")


def _check_integer(number: str) -> None:
    _check_length(number)
    if not -(2**63) <= int(number) < 2**63:
        raise InvalidInput(f"Expected 64-bit integers, got {number}")


def _repeated_key(body: bytes) -> InvalidInput:
    def look(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidInput(f"Expected each key of an object once, got {json.dumps(key[:255])} again")
            seen.add(key)

    try:
        json.loads(body, object_pairs_hook=look)
    except InvalidInput as error:
        return error
    return InvalidInput("Expected each key of an object once, got one twice")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "text that is not valid UTF-8"
    return plain_words(str(error).removesuffix(" - at `$[...]`"))


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _explain(value: object, message: type[msgspec.Struct]) -> InvalidInput:
    errors = tuple(problems(value, message, _judge))[:MAX_FIELD_ERRORS]
    return InvalidInput(f"The request is not valid: {listed(errors, lambda pointer: pointer)}", errors=errors)


def listed(errors: Sequence[FieldError], name: Callable[[str], str]) -> str:
    """The first three, on one line; `name` says what a pointer is called."""
    first = "; ".join(f"{name(error.pointer) or 'the request'}: {error.detail}" for error in errors[:3])
    return first + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")


Judge = Callable[[object, Any], object]
"""Raises msgspec's `ValidationError` if a value is not of a type."""


def _judge(value: object, expected: Any) -> object:
    return msgspec.json.decode(_write(value), type=expected)


def problems(value: object, expected: Any, judge: Judge, pointer: str = "") -> list[FieldError]:
    """What is wrong with a value: the errors of its parts where it has parts of their own type, else its own."""
    try:
        judge(value, expected)
    except msgspec.ValidationError as error:
        own = str(error)
    else:
        return []
    below: list[FieldError] = []
    if type(value) is dict:
        struct = struct_in(expected)
        if struct is not None:
            below = _field_problems(value, struct, judge, pointer)
        else:
            for key, item in itertools.islice(value.items(), MAX_PARTS):
                below += _own_problems({key: item}, expected, judge, _step(pointer, str(key)))
    elif type(value) is list:
        for index, item in enumerate(value[:MAX_PARTS]):
            below += _own_problems([item], expected, judge, _step(pointer, str(index)))
    return below or [FieldError(pointer, plain_words(own.partition(" - at `")[0], expected))]


def _own_problems(part: object, expected: Any, judge: Judge, pointer: str) -> list[FieldError]:
    """What is wrong with a container of one element, said of the element."""
    try:
        judge(part, expected)
    except msgspec.ValidationError as error:
        detail, _, path = str(error).partition(" - at `")
        if path:  # without a path the container itself is meant, for instance its length
            return [
                FieldError(pointer, plain_words(detail, expected) + (" as its name" if path.startswith("key") else ""))
            ]
    return []


def _field_problems(
    value: dict[str, object], struct: type[msgspec.Struct], judge: Judge, pointer: str
) -> list[FieldError]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    unknown = itertools.islice((key for key in value if key not in fields), MAX_FIELD_ERRORS)
    found = [FieldError(_step(pointer, key), f"unknown field{did_you_mean(key, fields)}") for key in unknown]
    for name, field in fields.items():
        if name in value:
            found += problems(value[name], field.type, judge, _step(pointer, name))
        elif field.required:
            found.append(FieldError(_step(pointer, name), "required, but missing"))
    return found


def struct_in(expected: Any) -> type[msgspec.Struct] | None:
    """The struct type within `Annotated[...]` and unions; messages have at most one in a union."""
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        return expected
    if typing.get_origin(expected) in (typing.Annotated, typing.Union, types.UnionType):
        for part in typing.get_args(expected):
            found = struct_in(part)
            if found is not None:
                return found
    return None


def _step(pointer: str, key: str) -> str:
    return f"{pointer}/{key[:255].replace('~', '~0').replace('/', '~1')}"
