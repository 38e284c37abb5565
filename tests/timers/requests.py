"""Requests for timers, and waiting for what becomes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mainspring.timers.messages import (
    CreateTimer,
)

URL = "http://127.0.0.1:9/never"


def timer(timer_id: str = "t", **fields: Any) -> CreateTimer:
    """A request as the API would decode it."""
    defaults = {"timerId": timer_id, "delaySeconds": 3600, "callbackUrl": URL}
    if "executeAt" in fields:
        del defaults["delaySeconds"]
    return msgspec.json.decode(json.dumps({**defaults, **fields}), type=CreateTimer)


async def until(read: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not await read():  # noqa: ASYNC110 - a store tells nobody that it has changed
            await asyncio.sleep(0.01)
