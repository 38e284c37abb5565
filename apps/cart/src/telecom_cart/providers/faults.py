"""What can go wrong at a platform, on command: one table of faults for the double and for the simulators.

A fault belongs to a verb of the contract, and happens once, a number of times, or until it is taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    DELAY = "delay"
    """It takes `seconds`, and then goes well."""
    FAIL_BEFORE = "failBefore"
    """503, and nothing has happened."""
    APPLY_THEN_DROP = "applyThenDrop"
    """It happens, and the connection is closed without an answer."""
    APPLY_THEN_5XX = "applyThen5xx"
    """It happens, and 500 is answered."""
    APPLY_THEN_THROTTLE = "applyThenThrottle"
    """It happens, and what is answered is that fewer requests are wanted."""
    APPLY_THEN_REFUSE = "applyThenRefuse"
    """It happens, and a refusal is answered, as by a gateway that has sent it twice."""
    APPLY_LATER = "applyLater"
    """504, and it happens `seconds` later."""
    PROCESSING = "processing"
    """An order is accepted, and made `seconds` later of what the basket was; it can be read and closed meanwhile. For
    platforms that make orders at once it is no fault."""
    PROCESSING_THEN_DROP = "processingThenDrop"
    """The same, and the connection is closed without an answer."""
    EXPIRE_NOW = "expireNow"
    """The basket is gone before it happens."""
    QUOTA = "quota"
    """The customer has a basket already."""
    PRICE_DRIFT = "priceDrift"
    """The platform's prices are one minor unit higher, for this request."""
    THROTTLE = "throttle"
    """429, or what the platform says instead."""
    FAILED_ORDER_400 = "failedOrder400"
    """An order is stored as failed, and 400 is answered."""
    DOWN = "down"
    """The connection is closed before anything is read."""


@dataclass
class Fault:
    kind: FaultKind
    times: int | None = 1
    """None: always."""
    seconds: float = 1.0


@dataclass
class Faults:
    """Faults by verb; `*` is for every verb."""

    by_verb: dict[str, list[Fault]] = field(default_factory=dict)

    def add(self, verb: str, fault: Fault) -> None:
        self.by_verb.setdefault(verb, []).append(fault)

    def take(self, verb: str) -> Fault | None:
        """The fault that befalls this request, if there is one. It is used up by one."""
        for name in (verb, "*"):
            waiting = self.by_verb.get(name, [])
            if waiting:
                fault = waiting[0]
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        waiting.pop(0)
                return fault
        return None

    def clear(self) -> None:
        self.by_verb.clear()
