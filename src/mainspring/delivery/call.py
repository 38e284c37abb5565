"""What the sender is asked for and what it answers: plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from msgspec import Struct

from mainspring.text import printable

Problem = Literal["", "network", "timeout", "unreadable", "refused", "exhausted"]


DETAIL_LIMIT: Final = 500
"""Characters of a detail. What a receiver has sent may be in it."""


class Reading(Protocol):
    """An answer that is read."""

    @property
    def come(self) -> int:
        """Bytes of it so far."""
        ...

    def go_on(self) -> None:
        """There is room for it now."""
        ...

    def make_room(self) -> None:
        """It has room, does not go on, and others wait: ask again, behind them, or go without the rest."""
        ...


class Room(Protocol):
    """Memory for an answer, which others want, too."""

    def ask(self, answer_bytes: int, reading: Reading) -> bool:
        """Room for so many bytes, in place of what was asked for before. False: not now; the answer is told then."""
        ...

    def give_back(self) -> None:
        """The answer is not needed any more."""
        ...


class Call(Struct, frozen=True):
    """One HTTP request. `headers` are sent as they are, after those that frame the message."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_ms: int
    """For everything: finding the address, connecting, sending and reading the whole answer."""
    fresh: bool = False
    """Use no connection that has been idle: it may be half closed, which only shows after the request is sent."""
    room: Room | None = None
    """Is asked before an answer of any length is read or unpacked. Whoever gives it takes it back."""
    sent: Callable[[], None] | None = None
    """Is told when the system has taken the whole request, so that it is in memory no more."""


class Reply(Struct, frozen=True):
    """How a call ended. With a status there is no problem; with a problem there is no status."""

    status: int | None
    """None: there was no usable answer."""
    headers: dict[str, str]
    """Lower-case names; the values of repeated ones are joined with ", "."""
    body: bytes
    """Decompressed, and at most as long as the sender allows."""
    truncated: bool
    """The body went on behind `body`: it was too long, or stalled while others waited for its room; or there was no
    room for it in time: then there is nothing of it."""
    problem: Problem
    """refused: the guard forbids the address, or the request cannot be written as HTTP. exhausted: this process had no
    file descriptor left, which says nothing about the target; the call was not made."""
    detail: str
    """Words for people: short, and in one line, whatever the receiver sent."""
    sent: bool
    """False: certainly no byte of the request was handed to the network, so nothing can have happened."""
    duration_ms: int


def failed(problem: Problem, detail: str, *, sent: bool, duration_ms: int) -> Reply:
    """How a call without an answer ended."""
    detail = printable(detail[: DETAIL_LIMIT + 1])
    if len(detail) > DETAIL_LIMIT:
        detail = f"{detail[: DETAIL_LIMIT - 1]}…"
    return Reply(None, {}, b"", False, problem, detail, sent, duration_ms)


class Sends(Protocol):
    """Who sends one request, and brings back what became of it."""

    async def send(self, call: Call) -> Reply: ...
