"""The routes of an emulator's clock: for its token only, and in no other server."""

from __future__ import annotations

from typing import Final

from mainspring.api.routes import Route, always, operation
from mainspring.emulator.clock import VirtualClock
from mainspring.emulator.messages import ClockView, MoveClock, ShowClock
from mainspring.emulator.passage import Passage
from mainspring.wire.instants import to_instant, to_ms

STEP_SECONDS: Final = 2.0
"""How long one request may take; a long way is made in many."""
SHOW: Final = "/v1/clock/get"
MOVE: Final = "/v1/clock/move"


def clock_routes(passage: Passage, clock: VirtualClock) -> tuple[Route, ...]:
    def view(*, arrived: bool) -> ClockView:
        return ClockView(now=to_instant(clock.now_ms()), flows=clock.flows, arrived=arrived)

    async def show(_: ShowClock) -> ClockView:
        return view(arrived=True)

    async def move(asked: MoveClock) -> ClockView:
        return view(arrived=await passage.go_to(to_ms(asked.to), seconds=STEP_SECONDS))

    return (
        operation(SHOW, "Show the clock", show, example=ShowClock(), answer=ClockView, can_be_remade=always),
        operation(MOVE, "Move the clock ahead", move, example=MoveClock(to=0), answer=ClockView, can_be_remade=always),
    )
