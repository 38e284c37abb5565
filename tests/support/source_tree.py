"""The files of the repository, as the tests of this folder look at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
_DOTTED: Final = {".ci", ".gitignore", ".importlinter"}
_NOT_OURS: Final = {"__pycache__", "dist", "node_modules"}
"""Made on the machine, never committed. So is everything that starts with a dot and is not named above."""


def files(*suffixes: str) -> list[Path]:
    """All files of the repository, or those with one of these suffixes."""
    return [path for path in _walk(ROOT) if not suffixes or path.suffix in suffixes]


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _NOT_OURS or (path.name.startswith(".") and path.name not in _DOTTED):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
