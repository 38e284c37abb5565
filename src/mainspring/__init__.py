"""Mainspring: the durable clock and courier of HTTP services."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.jobs.handlers import DueJob
    from mainspring.library import DueTimer, Mainspring, open_lock

__all__ = ["DueJob", "DueTimer", "Mainspring", "__version__", "open_lock"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Loaded when used: a program that needs only one part of the package does not pay for the others.
    if name in ("DueJob", "DueTimer", "Mainspring", "open_lock"):
        from mainspring import library  # noqa: PLC0415

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
