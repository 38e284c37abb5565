"""The clock of an emulator on the wire."""

from __future__ import annotations

from datetime import datetime

from mainspring.wire.instants import Instant
from mainspring.wire.message import Message, View


class ShowClock(Message, frozen=True, kw_only=True):
    """What time it is."""


class MoveClock(Message, frozen=True, kw_only=True):
    """Move the clock ahead to an instant. One that has passed changes nothing."""

    to: Instant


class ClockView(View, frozen=True, kw_only=True):
    """What time it is in the emulator."""

    now: datetime
    flows: bool
    """Whether time passes by itself."""
    arrived: bool = True
    """False: the clock is still on its way, because calls take their time; ask again."""
