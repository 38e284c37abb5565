"""What the sender is asked for and what it returns: plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from msgspec import Struct

from mainspring.text import printable

Problem = Literal["", "network", "timeout", "unreadable", "refused", "exhausted"]


DETAIL_LIMIT: Final = 500
"""The length of a detail in characters. It may quote what a receiver has sent."""


class IncomingAnswer(Protocol):
    """An answer that is being read."""

    @property
    def come(self) -> int:
        """Bytes of it so far."""
        ...

    def go_on(self) -> None:
        """There is room for it now."""
        ...

    def make_room(self) -> None:
        """It has room but has stalled, and others wait: ask again, behind them, or do without the rest."""
        ...


class AnswerMemory(Protocol):
    """Memory for an answer, which others want as well."""

    def ask(self, answer_bytes: int, reading: IncomingAnswer) -> bool:
        """Room for this many bytes, instead of what was asked for before. False: not now; the answer is told later."""
        ...

    def give_back(self) -> None:
        """The answer is no longer needed."""
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
    """Use no connection that has been idle: it may be half closed, which shows only after the request is sent."""
    room: AnswerMemory | None = None
    """Asked before an answer of any length is read or unpacked. Whoever provides it takes it back."""
    sent: Callable[[], None] | None = None
    """Called when the system has taken the whole request, so that it is no longer in memory."""


class BrokenAnswer(Struct, frozen=True):
    """What had come of an answer whose body broke off or cannot be read: whoever sent it has acted on the request."""

    status: int
    headers: dict[str, str]
    set_cookies: tuple[str, ...]
    body: bytes
    """As it came, not decompressed."""


class Reply(Struct, frozen=True):
    """How a call ended. With a status there is no problem; with a problem there is no status."""

    status: int | None
    """None: there was no usable answer."""
    headers: dict[str, str]
    """Lower-case names; the values of repeated ones are joined with ", "."""
    body: bytes
    """Decompressed, and at most as long as the sender allows."""
    truncated: bool
    """There was more than `body` holds: it was too long, or stalled while others waited for its room; or there was no
    room for it in time, and `body` is empty."""
    problem: Problem
    """refused: the guard forbids the address, or the request cannot be written as HTTP. exhausted: this process had no
    file descriptor left, which says nothing about the target; the call was not made."""
    detail: str
    """A text for people: short and on one line, whatever the receiver sent."""
    sent: bool
    """False: certainly no byte of the request was handed to the network, so nothing can have happened."""
    duration_ms: int
    set_cookies: tuple[str, ...] = ()
    """Each on its own: what `headers` has joined cannot be taken apart again."""
    broken: BrokenAnswer | None = None
    """With a problem: the answer as far as it came, if its head did."""


def failed(problem: Problem, detail: str, *, sent: bool, duration_ms: int, broken: BrokenAnswer | None = None) -> Reply:
    """How a call without a whole answer ended."""
    detail = printable(detail[: DETAIL_LIMIT + 1])
    if len(detail) > DETAIL_LIMIT:
        detail = f"{detail[: DETAIL_LIMIT - 1]}…"
    return Reply(None, {}, b"", False, problem, detail, sent, duration_ms, broken=broken)


class Sends(Protocol):
    """Sends one request and brings back what became of it."""

    async def send(self, call: Call) -> Reply: ...
