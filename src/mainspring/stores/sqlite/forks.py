"""Files that were open when this process was forked: SQLite remembers its parent's locks on them as its own.

The memory of a child says that connections of this process hold locks which only the parent has, so that a new one may
wait for them for ever. SQLite cannot tell; so the file is refused in the child, which has to be forked before.
"""

from __future__ import annotations

import os
from collections import Counter

from mainspring.errors import ConfigError

_open: Counter[str] = Counter()
_inherited: set[str] = set()


def opened(path: str) -> None:
    """A store opens this file. Raises ConfigError if it was open in the parent at the fork."""
    name = os.path.realpath(path)
    if name in _inherited:
        raise ConfigError(
            f"Expected a database file that was not open when this process was forked, got {path}: "
            "start Mainspring after the fork, in each process"
        )
    _open[name] += 1


def closed(path: str) -> None:
    _open[os.path.realpath(path)] -= 1


def _forked() -> None:
    _inherited.update(name for name, count in _open.items() if count > 0)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
