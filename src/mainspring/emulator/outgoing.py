"""Calls that carry the machine's time where receivers compare it with their own.

A signature holds for some minutes around its `webhook-timestamp`, by the receiver's clock, and that is the machine's.
So the emulator signs again what the instance has signed in virtual time, whose time is in `mainspring-clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from mainspring.clock import Clock, wall_ms
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import MakesSenders, OpenSender
from mainspring.delivery.signatures import sign
from mainspring.wire.instants import to_instant

CLOCK_HEADER: Final = "mainspring-clock"
Secrets = Callable[[], Iterable[Sequence[str]]]


def clock_text(clock: Clock) -> str:
    """What is in that header."""
    return to_instant(clock.now_ms()).isoformat().replace("+00:00", "Z")


class Outgoing:
    """A maker of senders, in front of another."""

    def __init__(self, clock: Clock, make: MakesSenders, secrets: Secrets) -> None:
        """`secrets` are those of every namespace."""
        self._clock = clock
        self._make = make
        self._secrets = secrets

    def __call__(self, *, guard: Guard, **options: Any) -> OpenSender:
        return _Resigning(self._make(guard=guard, **options), self.stamped)

    def stamped(self, call: Call) -> Call:
        headers = dict(call.headers)
        message_id, signed_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not message_id or not signed_at:
            return call
        for secrets in self._secrets():
            signature = sign(secrets, message_id=message_id, timestamp=int(signed_at), body=call.body)
            if signature == headers.get("webhook-signature"):
                at = wall_ms() // 1000
                headers["webhook-timestamp"] = str(at)
                headers["webhook-signature"] = sign(secrets, message_id=message_id, timestamp=at, body=call.body)
                break
        return replace(call, headers=(*headers.items(), (CLOCK_HEADER, clock_text(self._clock))))


class _Resigning:
    def __init__(self, sender: OpenSender, stamped: Callable[[Call], Call]) -> None:
        self._sender = sender
        self._stamped = stamped

    async def __aenter__(self) -> Self:
        await self._sender.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sender.__aexit__(kind, error, trace)

    async def send(self, call: Call) -> Reply:
        return await self._sender.send(self._stamped(call))
