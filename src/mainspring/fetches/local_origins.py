"""Origins inside this program: the address `origin:<name>/<id>` names one, and its results go to a function.

Everything else about such a fetch is as for an origin that is reached over HTTP: the result is offered again and again
until the function returns, and the fetch shows how that went. The function is waited for, however long it takes within
its limit: a thread cannot be stopped, and what it has done would be thrown away. Where the origin is unknown, in a
server or in another program, the result is not offered but left (`left_results`). Only programs can name such an
address; the API cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from mainspring import telemetry
from mainspring.fetches.messages import FetchResult

SCHEME: Final = "origin:"


class ResultReceiver(Protocol):
    """The origins of a program."""

    def knows(self, name: str) -> bool:
        """Whether the program has origins of that name."""
        ...

    async def receive(self, name: str, origin_id: str, result: FetchResult) -> None:
        """Take a result. It is acknowledged when this returns, refused when it raises."""
        ...


def address_of(name: str, origin_id: str) -> str:
    return f"{SCHEME}{name}/{origin_id}"


def is_inside(address: str) -> bool:
    return address.startswith(SCHEME)


def name_in(address: str) -> str:
    """The name of the origin that an address inside a program names; empty for other addresses."""
    return address.removeprefix(SCHEME).partition("/")[0] if is_inside(address) else ""


class LocalOrigins:
    """The origins of this program, if it has any."""

    def __init__(self, *, check_url: Callable[[str], object], handler_ms: int) -> None:
        """`check_url` refuses addresses of outside origins to which no result may be brought. `handler_ms` is how long
        an origin may take to receive a result."""
        self._check_outside = check_url
        self.handler_ms = handler_ms
        self.receiver: ResultReceiver | None = None
        """Set by a program that has origins."""

    def check_url(self, url: str) -> None:
        """Refuse an address to which no result can be brought from here."""
        if self.receiver is None or not is_inside(url):
            self._check_outside(url)

    def reaches(self, url: str) -> bool:
        return not is_inside(url) or (self.receiver is not None and self.receiver.knows(name_in(url)))

    async def receive(self, url: str, result: FetchResult) -> str:
        """Hand a result to its origin. Returns why it was not taken; empty if it was."""
        name, _, origin_id = url.removeprefix(SCHEME).partition("/")
        if self.receiver is None:
            return f"This program does not have the origin {name!r}: it has no origins."
        limit = asyncio.timeout(self.handler_ms / 1000)
        try:
            async with limit:
                await self.receiver.receive(name, origin_id, result)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its answer
            if limit.expired():
                return f"The origin {name} {origin_id!r} did not end within {self.handler_ms / 1000:g} s."
            telemetry.exception("an origin failed to process a result", origin=name, req_id=result.req_id)
            return f"{type(error).__name__}: {error}"
        return ""
