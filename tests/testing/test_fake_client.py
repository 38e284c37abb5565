"""The shipped fake behaves like a server, without one."""

from __future__ import annotations

import pytest

from mainspring.errors import InvalidInput, NotFound
from mainspring.testing.fake_client import FakeMainspring


async def test_all_async_clients_of_a_fake_see_the_same_timers() -> None:
    fake = await FakeMainspring.start()
    async with fake.async_client() as client:
        await client.timers.create("a", callback_url="https://example.com/", delay_seconds=5, payload={"n": 1})
    other = fake.async_client()
    assert (await other.timers.get("a")).generation == 1
    assert [timer.timer_id async for timer in other.timers.iterate()] == ["a"]
    assert (await other.health()).status == "ok"
    with pytest.raises(NotFound):
        await other.timers.get("b")


def test_the_sync_client_of_a_fake_checks_like_the_server() -> None:
    fake = FakeMainspring.start_sync()
    with fake.client() as client:
        with pytest.raises(InvalidInput):
            client.timers.create("a", callback_url="ftp://example.com/", delay_seconds=5)
        client.timers.create("a", callback_url="https://example.com/", delay_seconds=5)
        assert client.timers.delete("a").timer.timer_id == "a"
