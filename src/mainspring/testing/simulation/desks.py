"""What calls ask of a destination, by their path: how the journal records each, and what a good answer says."""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from mainspring.delivery.call import Call
from mainspring.fetches.messages import FetchResult
from mainspring.testing.oracle.journal import AnyEvent, Effect, Sent
from mainspring.testing.oracle.journal import Call as Arrived
from mainspring.testing.oracle.journal import Reply as Answered

BUSY_SECONDS: Final = 1


class Body(Struct, frozen=True, rename="camel"):
    """What is read from a callback's body."""

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
    number: int = 0
    """The number of the call it answers."""

    @property
    def acted(self) -> bool:
        return self.status in (None, 200)


class Desk(Protocol):
    """Knows one kind of calls."""

    def sent(self, call: Call, *, node: str, at: int) -> Sent | None:
        """What is recorded when a call leaves; None for those that need no lease and have no lane."""
        ...

    def arrived(self, call: Call, host: str, *, node: str, at: int, wall_ms: int, number: int) -> AnyEvent | None: ...
    def answered(self, call: Call, answer: Answer, *, at: int, heard: bool) -> AnyEvent: ...
    def body(self, number: int) -> bytes: ...


class Callbacks:
    """Of timers."""

    def sent(self, call: Call, *, node: str, at: int) -> Sent:
        headers = dict(call.headers)
        return Sent(
            at=at,
            node=node,
            delivery_id=headers["webhook-id"],
            attempt=int(headers["mainspring-attempt"]),
            id=msgspec.json.decode(call.body, type=Body).timer_id,
        )

    def arrived(self, call: Call, host: str, *, node: str, at: int, wall_ms: int, number: int) -> Arrived:
        headers = dict(call.headers)
        body = msgspec.json.decode(call.body, type=Body)
        payload = msgspec.json.decode(body.payload, type=Payload | None)
        return Arrived(
            at=at,
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

    def answered(self, call: Call, answer: Answer, *, at: int, heard: bool) -> Answered:
        headers = dict(call.headers)
        return Answered(
            at=at,
            delivery_id=headers["webhook-id"],
            attempt=int(headers["mainspring-attempt"]),
            accepted=answer.acted,
            status=answer.status if heard else None,
            retry_after_ms=BUSY_SECONDS * 1000 if answer.status == 429 else 0,
        )

    def body(self, number: int) -> bytes:
        return b"{}"


class Runs:
    """Of jobs."""

    def sent(self, call: Call, *, node: str, at: int) -> Sent:
        headers = dict(call.headers)
        return Sent(
            service="jobs",
            at=at,
            node=node,
            delivery_id=headers["webhook-id"],
            attempt=int(headers["mainspring-attempt"]),
            id=headers["mainspring-job"],
        )

    def arrived(self, call: Call, host: str, *, node: str, at: int, wall_ms: int, number: int) -> Arrived:
        headers = dict(call.headers)
        return Arrived(
            service="jobs",
            at=at,
            host=host,
            delivery_id=headers["webhook-id"],
            attempt=int(headers["mainspring-attempt"]),
            id=headers["mainspring-job"],
            fence=int(headers["mainspring-fence"]),
            node=node,
            wall_ms=wall_ms,
            instant_ms=int(headers["mainspring-scheduled-at"]),
            launch_id=headers["mainspring-launch-id"],
        )

    def answered(self, call: Call, answer: Answer, *, at: int, heard: bool) -> Answered:
        headers = dict(call.headers)
        return Answered(
            service="jobs",
            at=at,
            delivery_id=headers["webhook-id"],
            attempt=int(headers["mainspring-attempt"]),
            accepted=answer.acted,
            status=answer.status if heard else None,
        )

    def body(self, number: int) -> bytes:
        return b"{}"


class Targets:
    """Of fetches: their path names the fetch, and each answer is another one."""

    def sent(self, call: Call, *, node: str, at: int) -> None:
        return None

    def arrived(self, call: Call, host: str, *, node: str, at: int, wall_ms: int, number: int) -> Arrived:
        return Arrived(
            service="fetches",
            at=at,
            host=host,
            delivery_id=f"call {number}",
            attempt=1,
            id=_last(call),
            node=node,
            wall_ms=wall_ms,
        )

    def answered(self, call: Call, answer: Answer, *, at: int, heard: bool) -> Answered:
        return Answered(
            service="fetches",
            at=at,
            delivery_id=f"call {answer.number}",
            attempt=1,
            accepted=answer.acted,
            status=answer.status if heard else None,
            mark=_last(call),
        )

    def body(self, number: int) -> bytes:
        return b"call %d" % number


class Origins:
    """Of fetches: they take results."""

    def sent(self, call: Call, *, node: str, at: int) -> None:
        return None

    def arrived(self, call: Call, host: str, *, node: str, at: int, wall_ms: int, number: int) -> None:
        return None

    def answered(self, call: Call, answer: Answer, *, at: int, heard: bool) -> AnyEvent:
        headers = dict(call.headers)
        req_id, attempt = headers["webhook-id"], headers["mainspring-attempt"]
        if answer.acted:
            mark = mark_of(msgspec.json.decode(call.body, type=FetchResult))
            return Effect(at=at, service="fetches", key=req_id, token=attempt, mark=mark)
        return Answered(
            service="fetches",
            at=at,
            delivery_id=f"offer of {req_id}",
            attempt=int(attempt),
            accepted=False,
            status=answer.status,
        )

    def body(self, number: int) -> bytes:
        return b"{}"


def mark_of(result: FetchResult) -> str:
    """What distinguishes one end of a fetch from another."""
    why = result.error.kind if result.error is not None else ""
    what = f"{result.response.status} {result.response.body}" if result.response is not None else why
    return f"{what} at {result.finished_at.timestamp():.3f}"


def _last(call: Call) -> str:
    return urlsplit(call.url).path.rpartition("/")[2]


HOOK: Final = "hook"
RUN: Final = "launch"
TARGET: Final = "target"
RESULT: Final = "result"
DESKS: Final[dict[str, Desk]] = {HOOK: Callbacks(), RUN: Runs(), TARGET: Targets(), RESULT: Origins()}
"""By the first part of the path."""


def desk_of(call: Call) -> Desk:
    return DESKS[urlsplit(call.url).path.split("/")[1]]
