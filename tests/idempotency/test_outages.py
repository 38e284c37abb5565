"""A store that goes away: what was not done is said to be not done, and what was done is not lost silently."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import IdempotentProcessor, NotRecorded, RedisStore
from tests.servers.redis import Redis
from tests.servers.server import Server

pytestmark = pytest.mark.server("redis")


def test_without_a_store_the_work_does_not_run(start_server: Callable[[str], Server]) -> None:
    server = start_server("redis")
    runs: list[object] = []
    store = RedisStore(server.fresh())
    processor = IdempotentProcessor(store, runs.append, scope="outage")
    processor.process(1)
    server.kill()
    with pytest.raises(StoreUnavailable):
        processor.process(2)
    assert runs == [1]
    server.start()
    processor.process(2)
    assert runs == [1, 2]
    store.close()


def test_work_whose_outcome_cannot_be_recorded_says_so(start_server: Callable[[str], Server]) -> None:
    server = start_server("redis")
    store = RedisStore(server.fresh())

    def work(_: object) -> str:
        server.kill()
        return "done"

    processor = IdempotentProcessor(store, work, scope="outage", lease_seconds=0.5)
    with pytest.raises(NotRecorded, match="The work was done") as lost:
        processor.process(1)
    assert lost.value.result == "done"
    store.close()


def test_a_server_that_forgot_the_scripts_learns_them_again(redis: Redis) -> None:
    store = RedisStore(redis.fresh())
    processor = IdempotentProcessor(store, str, scope="scripts")
    processor.process(1)
    redis.execute("SCRIPT", "FLUSH")
    assert processor.process(1).was_replay
    redis.execute("SCRIPT", "FLUSH")
    assert not processor.process(2).was_replay
    store.close()


def test_a_connection_that_the_server_has_closed_is_replaced(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.idempotency.stores.redis.IDLE_SECONDS", 0.0)
    store = RedisStore(redis.fresh())
    processor = IdempotentProcessor(store, str, scope="idle")
    processor.process(1)
    redis.execute("CLIENT", "KILL", "TYPE", "normal")
    assert processor.process(1).was_replay
    store.close()
