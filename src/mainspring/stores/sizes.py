"""How large rows are: what a database could not hold is refused by itself, before it is sent.

A row grows after it was made: each attempt leaves its outcome in it. So whoever writes a row on behalf of a user leaves
room for one (`OUTCOME_BYTES`); otherwise an accepted row could not be brought to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from mainspring.model import Timer, to_json
from mainspring.store import Begin, Finish, Put, Remove

OUTCOME_BYTES: Final = 4096
"""The longest explanations of an outcome have a few hundred characters, plus the URL that some of them name."""
_ENDING_BYTES: Final = 4 * OUTCOME_BYTES
"""The outcome in the row, and once more in the history with a part of the answer."""
ROW_BYTES: Final = 256
"""Roughly what a row takes in addition to its texts."""

P = ParamSpec("P")
T = TypeVar("T")


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _timer_bytes(timer: Timer) -> int:
    names = text_bytes(timer.namespace) + text_bytes(timer.timer_id)
    return ROW_BYTES + names + len(to_json(timer.detail)) + (text_bytes(timer.payload) if timer.payload else 0)


def _bytes(change: Put | Remove | Begin | Finish) -> int:
    if isinstance(change, Put):
        return _timer_bytes(change.timer)
    if not isinstance(change, Finish):
        return ROW_BYTES
    row = _timer_bytes(change.change.timer) if isinstance(change.change, Put) else 0
    return row + ROW_BYTES + (len(to_json(change.attempt)) if change.attempt is not None else 0)


def weigh(change: Put | Remove | Begin | Finish, *, limit: int) -> int | None:
    """About how many bytes a change writes.

    None if it cannot be written at all, or would leave no room for what the row has to take later.
    """
    weight = if_it_can_be_written(_bytes, change)
    later = _ENDING_BYTES if isinstance(change, Put) else 0
    return None if weight is None or weight + later > limit else weight


def if_it_can_be_written(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What `make` makes of a row; None if a text is not valid (half a surrogate pair), or a number is too long."""
    try:
        return make(*args, **kwargs)
    except (ValueError, OverflowError):
        return None
