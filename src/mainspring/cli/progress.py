"""How far a long command is: a bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mainspring.cli.globals import Globals


@contextmanager
def progress(total: int | None, label: str, chosen: Globals) -> Iterator[Callable[[int], None]]:
    """The function takes how far things are. Without a total, that number is shown."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console  # noqa: PLC0415  (heavy)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True, no_color=chosen.no_color or None), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int) -> None:
            text = label if total is not None else f"{label} {done}"
            bar.update(task, completed=done, description=text)

        yield advance
