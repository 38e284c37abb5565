"""Who answers calls at the other end of the wire: destinations that are fast, slow, silent, refuse, flap, are gone, are
busy, or act and cut the line. When all is healed they become fast ones, but for those that stay bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from mainspring.delivery.call import Call
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.oracle.journal import Call as Arrived
from mainspring.testing.oracle.journal import Reply as Answered
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import Destination, DestinationKind

FLAP_US: Final = 700_000
"""How long a flapping destination is as it is."""
BUSY_SECONDS: Final = 1


class Body(Struct, frozen=True, rename="camel"):
    """What is read of a callback's body."""

    timer_id: str
    generation: int
    payload: Raw


class Payload(Struct, frozen=True):
    mark: str = ""


class Answer(Struct, frozen=True):
    """What a destination does with a call that reached it."""

    after_us: int
    """When it answers; with no status, when it cuts the line."""
    status: int | None
    headers: dict[str, str] = {}
    body: bytes = b"{}"
    is_silent: bool = False
    """It never answers, and never cuts."""


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

    def refuses(self, host: str, now_us: int) -> bool:
        """Whether no connection can be made."""
        return self._kind(host, now_us) == "refusing"

    def receive(self, call: Call, host: str, *, node: str, now_us: int, wall_ms: int) -> Answer:
        """A call has arrived."""
        headers = dict(call.headers)
        body = msgspec.json.decode(call.body, type=Body)
        payload = msgspec.json.decode(body.payload, type=Payload | None)
        self._write(
            Arrived(
                at=now_us,
                host=host,
                delivery_id=headers["webhook-id"],
                attempt=int(headers["mainspring-attempt"]),
                id=body.timer_id,
                generation=body.generation,
                mark="" if payload is None else payload.mark,
                fence=int(headers["mainspring-fence"]),
                node=node,
                wall_ms=wall_ms,
                due_ms=int(headers["mainspring-scheduled-at"]),
            )
        )
        return self._answer(host, now_us)

    def answered(self, call: Call, answer: Answer, *, now_us: int, heard: bool) -> None:
        """It has answered, or cut the line; `heard` by who called, unless that one has given up waiting."""
        headers = dict(call.headers)
        self._write(
            Answered(
                at=now_us,
                delivery_id=headers["webhook-id"],
                attempt=int(headers["mainspring-attempt"]),
                accepted=answer.status in (None, 200),
                status=answer.status if heard else None,
                retry_after_ms=BUSY_SECONDS * 1000 if answer.status == 429 else 0,
            )
        )

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
