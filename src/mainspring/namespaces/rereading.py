"""What memory holds of the store, read again while somebody may be changing both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def reread(found: Mapping[str, T], *, before: Mapping[str, T], known: Mapping[str, T]) -> dict[str, T]:
    """`found`, except where `known` differs from `before`: that was learnt during the reading, which may already have
    passed it."""
    learnt = {key for key in before.keys() | known.keys() if before.get(key) != known.get(key)}
    return {key: value for key, value in found.items() if key not in learnt} | {
        key: known[key] for key in learnt if key in known
    }
