"""What can be set. One frozen value, made at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CURRENCIES: Final = ("CAD",)
"""Those of the built-in taxes, which are taken in hundredths."""


@dataclass(frozen=True)
class Settings:
    currency: str = "CAD"
    attempt_seconds: float = 60.0
    """Until then an attempt is left to whoever began it; then it is recovered. A recovery has as long."""
    answer_seconds: float = 15.0
    """How long to wait for a checkout; then it is in progress, or unknown."""
    queue_limit: int = 32
    queue_seconds: float = 5.0
    """How many wait for a cart, and how long."""
    sync_delay_seconds: float = 0.2
    """Changes that come within this time are one synchronisation."""
    sync_hold_seconds: float = 60.0
    """How long to wait for a synchronisation before it is taken for dead."""
    sync_at_once: int = 64
    """How many synchronisations run at once: more of them on a slow platform would slow down those who shop."""
    sync_pause_seconds: float = 0.02
    """How far apart they begin, for the same reason."""
    idle_seconds: float = 900.0
    """A basket that was not used for this long is validated before it is used."""
    repeat_seconds: float = 600.0
    """Within this time after an order, a bare checkout of another cart has to say which cart it means."""
    inactive_seconds: float = 86_400.0
    failed_inactive_seconds: float = 3_600.0
    """Carts that nobody touched for this long are removed, some minutes later; the second is for those whose checkout
    failed."""
    touch_seconds: float = 60.0
    """How often the times of reads are written."""
    retry_initial_seconds: float = 5.0
    retry_max_seconds: float = 300.0
    """How often an unknown checkout is looked at again."""
