"""Waiting for something to become true, with an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainspring.client import AsyncClient, State, TimerView
from mainspring.errors import NotFound

T = TypeVar("T")

POLL_SECONDS = 0.02


async def until(look: Callable[[], Awaitable[T | None]], *, seconds: float, what: str) -> T:
    """The first answer that is not None."""
    deadline = time.monotonic() + seconds
    while (found := await look()) is None:
        if time.monotonic() >= deadline:
            raise AssertionError(f"Expected {what} within {seconds} s")
        await asyncio.sleep(POLL_SECONDS)
    return found


async def until_gone(client: AsyncClient, timer_id: str, *, seconds: float = 10.0) -> None:
    """Wait until a timer is done."""

    async def look() -> bool | None:
        try:
            await client.timers.get(timer_id)
        except NotFound:
            return True
        return None

    await until(look, seconds=seconds, what=f"{timer_id} to be done")


async def until_state(client: AsyncClient, timer_id: str, state: State, *, seconds: float = 10.0) -> TimerView:
    async def look() -> TimerView | None:
        view = await client.timers.get(timer_id)
        return view if view.state is state else None

    return await until(look, seconds=seconds, what=f"{timer_id} to be {state}")
