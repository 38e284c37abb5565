"""What an origin may keep: plain JSON, which is the same after a restart as before it.

Anything else is refused when it is given, naming its place in the value. A date that silently came back as text would
be noticed only by the one handler that runs after a crash.
"""

from __future__ import annotations

import math
from typing import Any, Final

from mainspring.errors import InvalidInput

DEPTH_LIMIT: Final = 32
_LARGEST: Final = 2**63


def plain(value: object, where: str) -> Any:
    """A copy of a JSON value, tuples as lists. Raises `InvalidInput` that names what is not JSON, and where."""
    return _copy(value, where, 0)


def _copy(value: object, where: str, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidInput(f"Expected values nested at most {DEPTH_LIMIT} deep, got more in {where}")
    if value is None or isinstance(value, bool):
        return value
    # Exact types: a subclass (an enum, a named tuple) would come back as something else.
    if type(value) is str:
        return _text(value, where)
    if type(value) is int and -_LARGEST <= value < _LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)
        return [_copy(part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
    if type(value) is dict:
        return {_name(name, where): _copy(part, f"{where}[{name!r}]", depth + 1) for name, part in value.items()}
    shown = repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"
    raise InvalidInput(f"Expected JSON (text, numbers, true, false, null, lists, dicts), got {shown} in {where}")


def _name(name: object, where: str) -> str:
    if type(name) is not str:
        raise InvalidInput(f"Expected text as the keys of a dict, got a {type(name).__name__} in {where}")
    return _text(name, where)


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"Expected text that UTF-8 can write, got a lone surrogate in {where}") from None
    return text
