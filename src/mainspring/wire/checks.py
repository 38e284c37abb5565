"""What the types cannot say about fields that several services have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET, Struct

from mainspring.errors import FieldError, InvalidInput, UnsafeTarget
from mainspring.text import hides_something

_HIDDEN: Final = "Expected no control characters, and none that reverse the writing direction"

CheckUrl = Callable[[str], object]
"""Raises `InvalidInput` or `UnsafeTarget` for a destination that may not be called, whatever its name resolves to."""


def url_errors(pointer: str, url: str, check_url: CheckUrl) -> list[FieldError]:
    try:
        check_url(url)
    except (InvalidInput, UnsafeTarget) as error:
        return [FieldError(pointer, error.detail)]
    return []


def id_errors(pointer: str, identity: str) -> list[FieldError]:
    return [FieldError(pointer, _HIDDEN)] if hides_something(identity) else []


def label_errors(labels: Mapping[str, str]) -> list[FieldError]:
    return [
        FieldError("/labels", f"{_HIDDEN}, in label {name!r}")
        for name, value in labels.items()
        if hides_something(name + value)
    ]


CHANGES_NOTHING: Final = frozenset({"namespace", "timer_id", "name", "if_generation", "dry_run"})
"""Fields of an update that say what is changed and how, not to what."""


def check_change(update: Struct) -> None:
    """Refuse an update without a change: it would raise the generation, against those who know the present one."""
    names = set(update.__struct_fields__) - CHANGES_NOTHING
    if all(getattr(update, name) is UNSET for name in names):
        raise InvalidInput("Expected at least one field to change, got none")


def refuse(errors: list[FieldError]) -> None:
    """Raise `InvalidInput` that names every wrong field, if there is one."""
    if errors:
        raise InvalidInput(errors[0].detail, errors=tuple(errors))
