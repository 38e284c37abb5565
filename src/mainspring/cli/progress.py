"""How far a long command is: a bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mainspring.cli.globals import Globals
from mainspring.text import printable


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


@contextmanager
def spinner(label: str, chosen: Globals) -> Iterator[Callable[[str], None]]:
    """For a wait of unknown length. The function takes what to say about it now."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console  # noqa: PLC0415  (heavy)
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True, no_color=chosen.no_color or None).status(Text(printable(label))) as status:
        yield lambda text: status.update(Text(printable(text)))
