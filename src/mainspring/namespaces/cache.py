"""What memory holds of the store, read again while somebody may be changing both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

T = TypeVar("T")

CACHE_SECONDS: Final = 10.0
"""How long what was read of a namespace may be gone by when a timer is added. Whoever changes where timers may go waits
for that long: so it is the same in every program and for every setting."""
MARGIN_MS: Final = 1_000
"""How far the clocks of two instances may be apart: both follow the store's."""


def known_everywhere_at(now: int) -> int:
    """From when on everybody who adds a timer knows what is committed now."""
    return now + round(CACHE_SECONDS * 1000) + MARGIN_MS


def reread(found: Mapping[str, T], *, before: Mapping[str, T], known: Mapping[str, T]) -> dict[str, T]:
    """`found`, except where `known` differs from `before`: that was learnt during the reading, which may already have
    passed it."""
    learnt = {key for key in before.keys() | known.keys() if before.get(key) != known.get(key)}
    return {key: value for key, value in found.items() if key not in learnt} | {
        key: known[key] for key in learnt if key in known
    }
