"""Functions of a program as targets of jobs, in programs that embed the engine: `handler:<name>` instead of a URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from mainspring.jobs.messages import RunKind


class DueJob(Struct, frozen=True, kw_only=True):
    """A run as its function sees it. All repeats of one run carry the same `delivery_id`."""

    name: str
    launch_id: str
    kind: RunKind
    scheduled_at: datetime
    previous_at: datetime | None
    """The instant of the run before."""
    next_at: tuple[datetime, ...]
    """The next five instants of the calendar."""
    attempt: int
    delivery_id: str
    body: Any = None
    """What the job, or whoever triggered it, sends; None if nothing."""


JobHandler = Callable[[DueJob], Awaitable[object]]
"""Returning is success; raising or taking too long is failure, and retried by the job's policy."""
