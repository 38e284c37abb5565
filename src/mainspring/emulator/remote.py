"""The clock of an emulator that runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mainspring.client import Client
from mainspring.client.reply import Repeat
from mainspring.emulator.messages import ClockView, MoveClock, ShowClock
from mainspring.emulator.routes import MOVE, SHOW
from mainspring.errors import NotFound
from mainspring.wire.message import Message


class RemoteClock:
    """`client` has to be open. Raises `NotFound` if its server has no clock to move."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def show(self) -> ClockView:
        return self._ask(SHOW, ShowClock())

    def move_to(self, instant: datetime, on_the_way: Callable[[ClockView], None] = lambda _: None) -> ClockView:
        """Returns when the clock has arrived and all that became due on the way was called."""
        view = self._ask(MOVE, MoveClock(to=instant))
        while not view.arrived:
            on_the_way(view)
            view = self._ask(MOVE, MoveClock(to=instant))
        return view

    def _ask(self, path: str, message: Message) -> ClockView:
        try:
            return self._client._connection.post(path, message, ClockView, repeat=Repeat.HARMLESS)
        except NotFound as error:
            raise NotFound(
                f"The server at {self._client.url} has no clock to move: start one with `mainspring dev serve`"
            ) from error
