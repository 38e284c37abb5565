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

Exclusion = dict[str, "Exclusion"]
"""A tree of field names. A leaf is left out; a branch says what is left out below it."""

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
        node: Exclusion | None = tree
        for branch in branches:
            node = None if node is None else node.setdefault(branch, {})
            node = node or (None if node is None else node)
        if node is not None:
            node[leaf] = {}
    return tree


def canonical(payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED) -> bytes:
    """The canonical form of a payload, without the excluded fields."""
    return _canonical(payload, exclusion(exclude_fields))


def payload_key(payload: object, *, exclude_fields: Iterable[str] = DEFAULT_EXCLUDED) -> str:
    """The key that a payload has when its caller gives none."""
    return DERIVED + sha256(canonical(payload, exclude_fields=exclude_fields)).hexdigest()


def identity(scope: str, payload: object, key: str | None, exclude: Exclusion) -> Identity:
    fingerprint = sha256(_canonical(payload, exclude)).hexdigest()
    if key is None:
        return Identity(DERIVED + fingerprint, f"{scope}:{fingerprint}", fingerprint)
    if key.startswith(DERIVED):
        raise InvalidInput(f"Expected a key that does not start with {DERIVED}, which derived keys do, got {key[:20]!r}")
    return Identity(key, address(scope, key), fingerprint)


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
    parts: list[bytes] = []
    try:
        _write(parts.append, payload, exclude, DEPTH_LIMIT)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"Expected text of valid Unicode in the payload, got {error.object!r}") from error
    return b"".join(parts)
