"""Answers that may be megabytes: only a few are made and taken at once, however many ask and whoever does not read.

A page of a list has its place (`pages`) before it is made. The answer about one thing, such as the result of a fetch,
is seldom large, and nobody knows before it is made: one that is large and finds no place is let go of, and made again
when there is one. So whoever asks for little never waits for those who do not take what they have asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mainspring.api.pages import Pages
from mainspring.api.routes import Route

LARGE_BYTES: Final = 131_072
MADE_AT_ONCE: Final = 16
"""How many answers may be in the making while nobody knows whether they are large."""


class LargeAnswers:
    def __init__(self) -> None:
        self._pages = Pages()
        self._made = asyncio.Semaphore(MADE_AT_ONCE)
        self._large = Pages()

    async def give(
        self,
        route: Route,
        body: bytes,
        send: Callable[[bytes], Awaitable[None]],
        *,
        reader: asyncio.Transport | None,
    ) -> None:
        """Send what a route answers. `send` returns when the reader has taken it."""
        if not route.is_page and route.can_be_remade is None:
            await send(await route.respond(body))
            return
        answer = b""
        if route.can_be_remade is not None:
            async with self._made:
                answer = await route.respond(body)
            if len(answer) <= LARGE_BYTES or not route.can_be_remade(body):
                await send(answer)
                return
        places = self._pages if route.is_page else self._large
        if not places.any_free:
            answer = b""
        async with places.making(reader) as place:
            answer = answer or await route.respond(body)
            place.hand_over()
            await send(answer)
