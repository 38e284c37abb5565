"""The servers of a torture, when it comes to an end."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest

from mainspring.testing.torture.members import Member


@pytest.mark.slow
async def test_a_healed_server_is_one_that_nobody_has_told_to_stop(tmp_path: Path) -> None:
    member = Member(
        0,
        tmp_path,
        {"store": f"sqlite:///{tmp_path}/members.db"},
        relay=None,
        dice=random.Random(1),
        write=lambda _: None,
        points=deque(),
        surroundings={},
    )
    member.arms = False
    try:
        await member.ready()
        watching = asyncio.create_task(member.watch())
        told = member.pid
        member.stop()
        async with asyncio.timeout(30):
            await member.heal()
        assert member.pid != told
        assert await member.close() == 0
        assert not member.failures
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    finally:
        await member.kill_and_reap()
