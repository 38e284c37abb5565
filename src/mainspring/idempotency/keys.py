"""Which payloads are the same. The canonical form is published in docs/reference/idempotency.md, with test vectors.

A rule, not an accident:

- Numbers are equal when their decimals are: `1`, `1.0` and `Decimal("1.00")` are one number, as they are in JSON;
  a float is the shortest decimal that reads back as it. NaN and infinities are refused.
- Everything else differs when its kind differs: `"1"`, `True`, `b"1"` and `1` are four values. A date is not its text.
- Lists and tuples are one kind, and so are dictionaries, dataclasses and structs. An enum is its value.

A derived key is the digest of the form without the excluded fields. A caller's own key is bound to the same digest,
its fingerprint. Both live below a scope, so that two functions never share a key.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import UNSET, Struct
from msgspec.json import Encoder

from mainspring.errors import ConfigError, InvalidInput

DEFAULT_EXCLUDED: Final = ("received_at", "correlation_id", "retry_count", "source_ip")
"""What envelopes say about a delivery, not about what is delivered."""

DEPTH_LIMIT: Final = 64
KEY_LIMIT: Final = 255
SCOPE_LIMIT: Final = 255
DERIVED: Final = "sha256-"
REMEMBERED: Final = 256
REMEMBERED_BYTES: Final = 1_024

Exclusion = dict[str, "Exclusion | None"]
"""A tree of field names: None leaves the field out, a tree says what is left out below it."""

_NOTHING: Final[Exclusion] = {}
_text = Encoder().encode


class Identity(NamedTuple):
    """Where a payload's record is, and which payload it is bound to."""

    key: str
    address: str
    fingerprint: str


def exclusion(paths: Iterable[str]) -> Exclusion:
    """`meta.trace_id` is the field `trace_id` of the object `meta`; of each of its items, if it is a list."""
    if isinstance(paths, str):
        raise ConfigError(f"Expected several paths of fields to exclude, got one text {paths!r}")
    tree: Exclusion = {}
    for path in paths:
        *branches, leaf = path.split(".")
        if not leaf or not all(branches):
            raise ConfigError(f"Expected a path such as meta.trace_id, got {path!r}")
        node = tree
        for branch in branches:
            below = node.setdefault(branch, {})
            if below is None:  # left out as a whole already
                break
            node = below
        else:
            node[leaf] = None
    return tree


def canonical(payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED) -> bytes:
    """The canonical form of a payload, without the excluded fields."""
    return _canonical(payload, exclusion(exclude_fields))


def payload_key(payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED) -> str:
    """The key that a payload has when its caller gives none."""
    return DERIVED + sha256(canonical(payload, exclude_fields=exclude_fields)).hexdigest()


class Identities:
    """The identities of one scope. Remembers the digests of the latest small payloads: a replay often follows at once.

    A payload is recognised by its bytes in Python's marshal format. Those of plain payloads, which alone are
    remembered, are the same only if all kinds and values are.
    """

    def __init__(self, scope: str, exclude: Exclusion) -> None:
        self.scope = scope
        self._exclude = exclude
        self._known: dict[bytes, str] = {}

    def of(self, payload: object, key: str | None) -> Identity:
        fingerprint = self._fingerprint(payload)
        if key is None:
            return Identity(DERIVED + fingerprint, f"{self.scope}:{fingerprint}", fingerprint)
        if key.startswith(DERIVED):
            raise InvalidInput(
                f"Expected a key that does not start with {DERIVED}, as derived ones do, got {key[:20]!r}"
            )
        return Identity(key, address(self.scope, key), fingerprint)

    def _fingerprint(self, payload: object) -> str:
        try:
            plain = marshal.dumps(payload, 2)  # type: ignore[arg-type]  # later versions depend on who else refers to an object
        except ValueError:
            plain = b""
        fingerprint = self._known.get(plain)
        if fingerprint is None:
            fingerprint = sha256(_canonical(payload, self._exclude)).hexdigest()
            if 0 < len(plain) <= REMEMBERED_BYTES and _is_plain(payload):
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[plain] = fingerprint
        return fingerprint


def _is_plain(value: object) -> bool:
    """Whether it is made of JSON's kinds and no others. Anything that has a buffer looks like bytes to marshal."""
    kind = type(value)
    if kind is dict:
        return all(_is_plain(item) for item in value.values())  # type: ignore[attr-defined]
    if kind is list:
        return all(_is_plain(item) for item in value)  # type: ignore[attr-defined]
    return kind in (str, int, float, bool) or value is None


def address(scope: str, key: str) -> str:
    """The record of a key, whether derived or a caller's own. A caller's is hashed: it may be any text."""
    if key.startswith(DERIVED):
        return f"{scope}:{key.removeprefix(DERIVED)}"
    if not 1 <= len(key) <= KEY_LIMIT:
        raise InvalidInput(f"Expected a key of 1 to {KEY_LIMIT} characters, got {len(key)}")
    try:  # no canonical form starts like this, so a caller's key never meets a derived one
        return f"{scope}:{sha256(b'key:' + key.encode()).hexdigest()}"
    except UnicodeEncodeError as error:
        raise InvalidInput(f"Expected a key of valid Unicode, got {key!r}") from error


def checked_scope(scope: str | None, work: object) -> str:
    """The scope as given, or the full name of the function."""
    if scope is None:
        name = getattr(work, "__qualname__", "<")
        if "<" in name:  # <lambda> and <locals>: several functions may have that name
            raise ConfigError("Expected scope= for work that is not a named function of a module, got none")
        scope = f"{getattr(work, '__module__', '')}.{name}"
    if not 1 <= len(scope.encode()) <= SCOPE_LIMIT:
        raise ConfigError(f"Expected a scope of 1 to {SCOPE_LIMIT} bytes, got {len(scope.encode())}")
    return scope


def _canonical(payload: object, exclude: Exclusion) -> bytes:
    try:
        return _form(payload, exclude, DEPTH_LIMIT)
    except UnicodeEncodeError as error:
        raise InvalidInput("Expected text of valid Unicode in the payload, got a lone surrogate") from error
    except (OverflowError, ValueError) as error:  # an instant outside of the calendar, a number of too many digits
        raise InvalidInput(f"Expected a payload within bounds, got: {error}") from error


def _form(value: object, exclude: Exclusion, depth: int) -> bytes:  # noqa: PLR0911  (one line per kind)
    """The kinds that JSON has come first, told apart by identity: most payloads have no others."""
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        return _integer(value)  # type: ignore[arg-type]
    if kind is float:
        return _float(value)  # type: ignore[arg-type]
    if value is None:
        return b"null"
    if kind is bool:
        return b"true" if value else b"false"
    if depth == 0:
        raise InvalidInput(f"Expected a payload of at most {DEPTH_LIMIT} levels without cycles, got a deeper one")
    if kind is dict:
        return _object(value, exclude, depth - 1)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join([_form(item, exclude, depth - 1) for item in value]) + b"]"
    return _other(value, exclude, depth)


def _object(value: Mapping[str, object], exclude: Exclusion, depth: int) -> bytes:
    try:
        names = sorted(value)
        "".join(names)  # the cheapest way to ask whether all are text
    except TypeError as error:
        raise InvalidInput("Expected text as the names of a payload's fields, got something else") from error
    fields = []
    for name in names:
        below = exclude.get(name, _NOTHING) if exclude else _NOTHING
        if below is not None:
            item = value[name]  # most are text; a call less for each of them
            fields.append(_text(name) + b":" + (_text(item) if type(item) is str else _form(item, below, depth)))
    return b"{" + b",".join(fields) + b"}"


def _other(value: object, exclude: Exclusion, depth: int) -> bytes:  # noqa: PLR0911, PLR0912  (one line per kind)
    match value:
        case Enum():
            return _form(value.value, exclude, depth - 1)
        case str():
            return _text(str.__str__(value))
        case int():
            return _integer(int(value))
        case float():
            return _float(float(value))
        case Decimal():
            return _decimal(value)
        case datetime() if value.utcoffset() is not None:
            moment = value.astimezone(UTC).replace(tzinfo=None)
            return f't"{moment.isoformat(timespec="microseconds")}Z"'.encode()
        case datetime():
            return f't"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}"'.encode()
        case date():
            return f'd"{value.isoformat()}"'.encode()
        case UUID():
            return f'u"{value}"'.encode()
        case bytes() | bytearray() | memoryview():
            return f'b"{value.hex()}"'.encode()
        case set() | frozenset():
            return b"s[" + b",".join(sorted({_form(item, exclude, depth - 1) for item in value})) + b"]"
        case Mapping():
            return _object(value, exclude, depth - 1)
        case _:
            return _object(_fields(value), exclude, depth - 1)


def _fields(value: object) -> Mapping[str, object]:
    """A dataclass by the names of its fields, a struct by the names that it has as JSON, with its tag."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {} if config.tag_field is None else {config.tag_field: config.tag}
        named = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        given = {name: getattr(value, attribute) for name, attribute in named}
        return tag | {name: item for name, item in given.items() if item is not UNSET}
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields  # noqa: PLC0415  (already loaded, or there would be no such value)

        return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    raise InvalidInput(
        "Expected a payload of None, bool, int, float, Decimal, str, bytes, date, datetime, UUID, enums, lists, "
        f"tuples, sets, dictionaries, dataclasses and structs, got {type(value).__qualname__}"
    )


def _integer(value: int) -> bytes:
    digits = b"%d" % value
    if value % 10 or not value:
        return digits
    short = digits.rstrip(b"0")
    return b"%se%d" % (short, len(digits) - len(short))


def _float(value: float) -> bytes:
    """The shortest decimal that reads back as this float."""
    text = repr(value)
    whole, point, rest = text.partition(".")
    if not point or "e" in rest or rest == "0" or whole in ("0", "-0"):
        return _decimal(Decimal(text))
    return f"{whole}{rest}e-{len(rest)}".encode()


def _decimal(value: Decimal) -> bytes:
    """The digits without zeros at the end, and the power of ten that they are multiplied by, unless it is 1."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidInput(f"Expected numbers in the payload, got {value}")
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return b"0"
    exponent += len(text) - len(short)
    return f"{'-' if sign else ''}{short}{f'e{exponent}' if exponent else ''}".encode()
