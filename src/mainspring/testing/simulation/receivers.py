"""Who answers calls at the other end of the wire: destinations that are fast, slow, silent, refuse, flap, are gone, are
busy, or act and cut the line. When all is healed they become fast ones, except for those that stay bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from mainspring.delivery.call import Call
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.simulation.desks import BUSY_SECONDS, Answer, desk_of
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import Destination, DestinationKind

FLAP_US: Final = 700_000
"""How long a flapping destination stays in one state."""


def host_of(destination: int) -> str:
    return f"d{destination}.example"


class Receivers:
    def __init__(
        self,
        destinations: Mapping[str, Destination],
        draws: Draws,
        write: Callable[[AnyEvent], None],
    ) -> None:
        """`destinations` by the host under which they are called."""
        self._destinations = destinations
        self._draws = draws
        self._write = write
        self.healed = False
        self._received = 0

    def refuses(self, host: str, now_us: int) -> bool:
        """Whether no connection can be made."""
        return self._kind(host, now_us) == "refusing"

    def receive(self, call: Call, host: str, *, node: str, now_us: int, wall_ms: int) -> Answer:
        """A call has arrived."""
        self._received += 1
        number = self._received
        told = desk_of(call).arrived(call, host, node=node, at=now_us, wall_ms=wall_ms, number=number)
        if told is not None:
            self._write(told)
        return replace(self._answer(host, now_us), number=number, body=desk_of(call).body(number))

    def answered(self, call: Call, answer: Answer, *, now_us: int, heard: bool) -> None:
        """It has answered, or cut the line; `heard` by the caller, unless that has given up waiting."""
        self._write(desk_of(call).answered(call, answer, at=now_us, heard=heard))

    def _answer(self, host: str, now_us: int) -> Answer:
        destination = self._destinations[host]
        longest_us = round(destination.seconds * 1_000_000)
        after = longest_us // 4 + self._draws.draw(f"receiver/{host}", longest_us * 3 // 4 + 1)
        match self._kind(host, now_us):
            case "silent":
                return Answer(0, None, is_silent=True)
            case "gone":
                return Answer(after, 410)
            case "busy":
                return Answer(after, 429, {"retry-after": str(BUSY_SECONDS)})
            case "cuts":
                return Answer(after, None)
            case "flapping":
                return Answer(after, 503)
            case _:
                return Answer(after, 200)

    def _kind(self, host: str, now_us: int) -> DestinationKind:
        destination = self._destinations[host]
        if self.healed and destination.healed:
            return "fast"
        if destination.kind == "flapping":
            turn: tuple[DestinationKind, ...] = ("fast", "flapping", "refusing", "cuts")
            return turn[self._draws.at(f"flap/{host}/{now_us // FLAP_US}") % len(turn)]
        return destination.kind
