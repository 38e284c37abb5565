"""Which payloads are the same. The canonical form is published in docs/reference/idempotency.md, with test vectors.

A rule, not an accident:

- Numbers are equal when their decimals are: `1`, `1.0` and `Decimal("1.00")` are one number, as they are in JSON;
  a float is the shortest decimal that reads back as it. NaN and infinities are refused.
- Everything else differs when its kind differs: `"1"`, `True`, `b"1"` and `1` are four values. A date is not its text.
- Lists and tuples are one kind, and so are dictionaries, dataclasses, structs, attrs classes and pydantic models. An
  enum is its value. All fields of a model count, by their names, whatever it leaves out when it is serialised.
- A value of any other type has no form, unless the program says which value stands for it (`encode`).

A derived key is the digest of the form without the excluded fields. A caller's own key is bound to the same digest,
its fingerprint. Both live below a scope, so that two functions never share a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET, Raw, Struct
from msgspec.json import Encoder

from mainspring.errors import ConfigError, FieldError, InvalidInput

DEFAULT_EXCLUDED: Final = ("received_at", "correlation_id", "retry_count", "source_ip")
"""What envelopes say about a delivery, not about what is delivered."""

DEPTH_LIMIT: Final = 64
KEY_LIMIT: Final = 255
SCOPE_LIMIT: Final = 255
DERIVED: Final = "sha256-"

Exclusion = dict[str, "Exclusion | None"]
"""A tree of field names: None leaves the field out, a tree says what is left out below it."""

Encode = Callable[[Any], Any]
"""Gives the value that stands for one of a type that has no form of its own."""

_NOTHING: Final[Exclusion] = {}
_MICROSECOND: Final = timedelta(microseconds=1)
_write = Encoder(order="sorted").encode


class Identity(Struct, frozen=True):
    """Where a payload's record is, and which payload it is bound to."""

    key: str
    address: str
    fingerprint: str
    """Empty: the key alone decides, whatever the payload."""


class _NoForm(Exception):
    """Part of a payload has no form. Says where on its way out."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.path: list[str | int] = []
        """From the inside out."""

    def told(self) -> InvalidInput:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.path))
        pointer = "".join(f"/{step}" for step in reversed(self.path))
        detail = f"{self.detail} in the payload's field {where.lstrip('.')}" if where else self.detail
        return InvalidInput(detail, errors=(FieldError(pointer, self.detail),) if where else ())


def exclusion(paths: Iterable[str]) -> Exclusion:
    """`meta.trace_id` is the field `trace_id` of the object `meta`, or of each of its items if it is a list."""
    if isinstance(paths, str):
        raise ConfigError(f"Expected a list of field paths to exclude, got the text {paths!r}")
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


def canonical(
    payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED, encode: Encode | None = None
) -> bytes:
    """The canonical form of a payload, without the excluded fields."""
    return _canonical(payload, exclusion(exclude_fields), encode)


def payload_key(
    payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED, encode: Encode | None = None
) -> str:
    """The key that a payload has when its caller gives none."""
    return DERIVED + sha256(canonical(payload, exclude_fields=exclude_fields, encode=encode)).hexdigest()


class Identities:
    """The identities of one scope."""

    def __init__(
        self, scope: str, exclude: Exclusion, *, encode: Encode | None = None, compares_payloads: bool = True
    ) -> None:
        self.scope = scope
        self._prefix = f"{scope}:"
        self._exclude = exclude
        self._encode = encode
        self._compares_payloads = compares_payloads

    def of(self, payload: object, key: str | None) -> Identity:
        """A derived key may be given back, as `record.key`, with the payload that it was derived from."""
        if not self._compares_payloads:
            if key is None:
                raise InvalidInput('Expected a key, because with match="key" it alone decides, got none')
            if checked_key(key).startswith(DERIVED):
                raise InvalidInput(f"Expected a key that does not start with {DERIVED}, got {key[:20]!r}")
            return Identity(key, address(self.scope, key), "")
        fingerprint = sha256(_canonical(payload, self._exclude, self._encode)).hexdigest()
        if key is None or key == DERIVED + fingerprint:
            return Identity(DERIVED + fingerprint, self._prefix + fingerprint, fingerprint)
        if checked_key(key).startswith(DERIVED):
            raise InvalidInput(
                f"Expected a key that does not start with {DERIVED}, or the one of this payload, got {key[:20]!r}"
            )
        return Identity(key, address(self.scope, key), fingerprint)


def checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"Expected text as a key, got {key!r:.50} of type {type(key).__qualname__}")
    return key


def address(scope: str, key: str) -> str:
    """The record of a key, whether derived or a caller's own. A caller's is hashed: it may be any text."""
    if checked_key(key).startswith(DERIVED):
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
        if "<" in name:  # <lambda> and <locals>: several functions may have such a name
            raise ConfigError("Expected scope= for work that is not a named function of a module, got none")
        scope = f"{getattr(work, '__module__', '')}.{name}"
    if not 1 <= len(scope.encode()) <= SCOPE_LIMIT:
        raise ConfigError(f"Expected a scope of 1 to {SCOPE_LIMIT} bytes, got {len(scope.encode())}")
    return scope


def _canonical(payload: object, exclude: Exclusion, encode: Encode | None = None) -> bytes:
    try:
        if type(payload) is dict:
            return _write(_object(payload, exclude, DEPTH_LIMIT, encode))
        return _write(_json(payload, exclude, DEPTH_LIMIT, encode))
    except _NoForm as error:
        raise error.told() from error.__cause__
    except UnicodeEncodeError as error:
        raise InvalidInput("Expected text of valid Unicode in the payload, got a lone surrogate") from error
    except (OverflowError, ValueError) as error:  # an instant outside the calendar, a number with too many digits
        raise InvalidInput(f"Expected a payload within bounds, got: {error}") from error


def _json(value: object, exclude: Exclusion, depth: int, encode: Encode | None) -> object:
    """The value as something that is written in its canonical form: what JSON would write differently becomes `Raw`."""
    kind = type(value)
    if kind is dict:
        return _object(value, exclude, depth, encode)  # type: ignore[arg-type]
    if kind is list or kind is tuple:
        return _array(value, exclude, depth, encode)  # type: ignore[arg-type]
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return _integer(value)  # type: ignore[arg-type]
    if kind is float:
        return _float(value)  # type: ignore[arg-type]
    return _other(value, exclude, depth, encode)


def _object(  # noqa: PLR0912  (see its docstring)
    value: dict[str, object], exclude: Exclusion, depth: int, encode: Encode | None
) -> dict[str, object]:
    """The value itself if everything in it can stay as it is. Common types are handled here, without a call."""
    if depth == 0:
        raise _too_deep()
    if exclude and not exclude.keys().isdisjoint(value):
        return _pruned(value, exclude, depth, encode)
    changed = None
    try:
        for name, item in value.items():
            if type(name) is not str:
                break
            kind = type(item)
            if kind is str:
                continue
            written: object
            if kind is int:
                written = item if item % 10 else _integer(item)  # type: ignore[operator, arg-type]
            elif kind is float:
                written = _float(item)  # type: ignore[arg-type]
            elif kind is list:
                written = _array(item, _NOTHING, depth - 1, encode)  # type: ignore[arg-type]
            elif kind is dict:
                written = _object(item, _NOTHING, depth - 1, encode)  # type: ignore[arg-type]
            else:
                written = _json(item, _NOTHING, depth - 1, encode)
            if written is not item:
                if changed is None:
                    changed = value.copy()
                changed[name] = written
        else:
            return value if changed is None else changed
    except _NoForm as error:
        error.path.append(name)
        raise
    return _object(_named(value), exclude, depth, encode)


def _pruned(value: dict[str, object], exclude: Exclusion, depth: int, encode: Encode | None) -> dict[str, object]:
    kept = {}
    for name, item in _named(value).items():
        below = exclude.get(name, _NOTHING)
        if below is not None:
            try:
                kept[name] = _json(item, below, depth - 1, encode)
            except _NoForm as error:
                error.path.append(name)
                raise
    return kept


def _named(value: dict[str, object]) -> dict[str, object]:
    """With names that are plain text: those of an enum, say, are turned into it."""
    for name in value:
        if not isinstance(name, str):
            raise _NoForm(f"Expected text as the names of a payload's fields, got {name!r:.50}")
    return {str.__str__(name): item for name, item in value.items()}


def _array(value: Sequence[object], exclude: Exclusion, depth: int, encode: Encode | None) -> list[object]:
    if depth == 0:
        raise _too_deep()
    items: list[object] = []
    try:
        for item in value:
            kind = type(item)
            if kind is dict:
                items.append(_object(item, exclude, depth - 1, encode))  # type: ignore[arg-type]
            else:
                items.append(item if kind is str else _json(item, exclude, depth - 1, encode))
    except _NoForm as error:
        error.path.append(len(items))
        raise
    return items


def _too_deep() -> InvalidInput:
    return InvalidInput(f"Expected a payload of at most {DEPTH_LIMIT} levels, without cycles, got a deeper one")


def _other(  # noqa: PLR0911, PLR0912  (one line per kind)
    value: object, exclude: Exclusion, depth: int, encode: Encode | None
) -> object:
    if depth == 0:
        raise _too_deep()
    match value:
        case Enum():
            return _json(value.value, exclude, depth - 1, encode)
        case str():
            return str.__str__(value)
        case int():
            return _integer(int(value))
        case float():
            return _float(float(value))
        case Decimal():
            return _decimal(value)
        case datetime() if value.utcoffset() is not None:
            moment = value.astimezone(UTC).replace(tzinfo=None)
            return Raw(f't"{moment.isoformat(timespec="microseconds")}Z"')
        case datetime():
            return Raw(f't"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}"')
        case date():
            return Raw(f'd"{value.isoformat()}"')
        case time():
            return Raw(f'h"{value.isoformat(timespec="microseconds")}"')
        case timedelta():
            return Raw(f'p"{value // _MICROSECOND}"')
        case UUID():
            return Raw(f'u"{value}"')
        case bytes() | bytearray() | memoryview():
            return Raw(f'b"{value.hex()}"')
        case list() | tuple():
            return _array(value, exclude, depth, encode)
        case set() | frozenset():
            forms = sorted({_write(_json(item, exclude, depth - 1, encode)) for item in value})
            return Raw(b"s[" + b",".join(forms) + b"]")
        case Mapping():
            return _object(dict(value), exclude, depth, encode)
    kind = type(value)
    if is_path(kind):
        return Raw(b"f" + _write(value.as_posix()))  # type: ignore[attr-defined]
    if is_ip(kind):
        return Raw(f'{"n" if hasattr(value, "network_address") else "i"}"{value}"')
    if getattr(kind, "__pydantic_root_model__", False):
        return _json(value.root, exclude, depth - 1, encode)  # type: ignore[attr-defined]
    fields = _fields(value)
    if fields is not None:
        return _object(fields, exclude, depth, encode)
    return _json(_encoded(value, encode), exclude, depth - 1, encode)


def _fields(value: object) -> dict[str, object] | None:
    """A struct by the names that it has as JSON, with its tag; all others by the names of their fields."""
    kind: Any = type(value)
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {} if config.tag_field is None else {config.tag_field: config.tag}
        named = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        given = {name: getattr(value, attribute) for name, attribute in named}
        return tag | {name: item for name, item in given.items() if item is not UNSET}
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields  # noqa: PLC0415  (already loaded, or there would be no such value)

        return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if is_model(kind):
        # Not by `model_dump`: it leaves out what subclasses add, and fields that are not to be serialised.
        return {name: getattr(value, name) for name in kind.model_fields} | (getattr(value, "model_extra", None) or {})
    return None


def is_path(kind: Any) -> bool:
    """Recognised, not imported: few programs need it."""
    return _comes_from(kind, "pathlib")


def is_ip(kind: Any) -> bool:
    """Addresses, interfaces and networks."""
    return _comes_from(kind, "ipaddress")


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields")


def _comes_from(kind: Any, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in getattr(kind, "__mro__", ()))


def _encoded(value: object, encode: Encode | None) -> object:
    kind = type(value).__qualname__
    if encode is None:
        raise _NoForm(
            "Expected None, bool, int, float, Decimal, str, bytes, date, datetime, time, timedelta, UUID, Path, IP "
            "addresses, enums, lists, tuples, sets, dictionaries, dataclasses, structs, attrs classes and pydantic "
            f"models, or encode= for other types, got {kind}"
        )
    try:
        return encode(value)
    except (TypeError, NotImplementedError) as error:
        raise _NoForm(f"Expected encode= to give a value for {kind}, got {type(error).__name__}: {error}") from error


def _integer(value: int) -> int | Raw:
    """As it is, unless it ends with zeros."""
    if value % 10 or not value:
        return value
    if value % 100:  # most of those that do
        return Raw(b"%de1" % (value // 10))
    digits = b"%d" % value
    short = digits.rstrip(b"0")
    return Raw(b"%be%d" % (short, len(digits) - len(short)))


def _float(value: float) -> int | Raw:
    """The shortest decimal that reads back as this float."""
    text = repr(value)
    whole, point, rest = text.partition(".")
    if not point or "e" in rest or whole in ("0", "-0"):
        return _decimal(Decimal(text))
    return _integer(int(whole)) if rest == "0" else Raw(f"{whole}{rest}e-{len(rest)}")


def _decimal(value: Decimal) -> Raw:
    """The digits without zeros at the end, and the power of ten that they are multiplied by, unless it is 1."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _NoForm(f"Expected a number, got {value}")
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return Raw(b"0")
    exponent += len(text) - len(short)
    return Raw(f"{'-' if sign else ''}{short}{f'e{exponent}' if exponent else ''}")
