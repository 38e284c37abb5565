"""Answers that say what time it is in the emulator, so that whoever shows them does not go by the machine's clock."""

from __future__ import annotations

from mainspring.api.asgi import AsgiApp, Message, Receive, Scope, Send
from mainspring.clock import Clock
from mainspring.emulator.outgoing import CLOCK_HEADER, clock_text


class TimedAnswers:
    """An application, with `mainspring-clock` in every answer."""

    def __init__(self, app: AsgiApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = (CLOCK_HEADER.encode(), clock_text(self._clock).encode())
                message = {**message, "headers": [*message["headers"], own]}
            await send(message)

        await self._app(scope, receive, timed)
