"""The names of arguments that a function takes in a `**` group: one it does not know is refused, as Python does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first name that is not known: an ignored condition would match too much."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(sorted(known))}"
            raise TypeError(f"got an unexpected keyword argument {name!r}{hint}")
