"""Mainspring: durable timers, jobs and fetches over HTTP."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.jobs.handlers import DueJob
    from mainspring.library import Mainspring
    from mainspring.locks import open_lock
    from mainspring.sync_library import SyncMainspring
    from mainspring.timers.program import DueTimer

__all__ = ["DueJob", "DueTimer", "Mainspring", "SyncMainspring", "__version__", "open_lock"]
__version__ = "0.1.0"

_MODULE_OF: Final = {
    "DueJob": "mainspring.jobs.handlers",
    "DueTimer": "mainspring.timers.program",
    "Mainspring": "mainspring.library",
    "SyncMainspring": "mainspring.sync_library",
    "open_lock": "mainspring.locks",
}


def __getattr__(name: str) -> object:
    # Loaded when used: a program that needs only one part of the package does not pay for the others.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found
