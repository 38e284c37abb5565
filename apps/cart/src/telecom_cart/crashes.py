"""Places at which the process can be made to die or to freeze, for tests: `TELECOM_CART_CRASH_AT=submitting`."""

from __future__ import annotations

import os
import signal
from typing import Final

SEALED: Final = "sealed"
PREPARED: Final = "prepared"
SUBMITTING: Final = "submitting"
ACCEPTED: Final = "accepted"
ANSWERED: Final = "answered"
RECORDED: Final = "recorded"
CLOSED: Final = "closed"
FENCED: Final = "fenced"
STEPS: Final = (SEALED, PREPARED, SUBMITTING, ANSWERED, RECORDED, CLOSED)
"""Those of a checkout, in order. `accepted` is of one that the platform makes later, `fenced` of a recovery."""

_armed: dict[str, signal.Signals] = {}
for _variable, _signal in (("TELECOM_CART_CRASH_AT", signal.SIGKILL), ("TELECOM_CART_FREEZE_AT", signal.SIGSTOP)):
    if _place := os.environ.get(_variable):
        _armed[_place] = _signal


def reach(place: str) -> None:
    """Nothing, unless somebody asked for it. It happens once."""
    if place in _armed:
        os.kill(os.getpid(), _armed.pop(place))
