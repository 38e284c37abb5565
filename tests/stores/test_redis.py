"""What is special about the record store in Redis: other programs' strings, its own expiry, and no timers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import pytest

from mainspring.clock import SystemClock, wall_ms
from mainspring.errors import ConfigError, StoreUnavailable, Unsupported
from mainspring.model import Record, Shard
from mainspring.store import START, Put, Store, TimerFilter
from mainspring.stores import store_from_url
from mainspring.stores.redis import RedisStore, redis_store
from mainspring.testing.timer_samples import NOW, timer
from tests.servers.process import free_port
from tests.servers.redis import Redis
from tests.servers.server import Server

JOBS = "jobs:meta"


@pytest.fixture
async def store(redis: Redis) -> AsyncIterator[RedisStore]:
    store = redis_store(redis.fresh())
    await store.open()
    yield store
    await store.close()


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://:6379",
        "redis://host:port/0",
        "redis://host/db",
        "redis://host/0/1",
        "redis://host/0?db=1",
        "redis://:secret@host/x",
        "rediss://host#x",
    ],
)
def test_an_address_that_is_not_one_is_refused_without_telling_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="Expected") as caught:
        store_from_url(url, clock=SystemClock())
    assert "secret" not in str(caught.value)


def test_without_its_library_the_store_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from mainspring.clock import SystemClock\n"
        "from mainspring.stores import store_from_url\n"
        "store_from_url('redis://127.0.0.1', clock=SystemClock())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert "ConfigError" in done.stderr
    assert "pip install 'mainspring[redis]'" in done.stderr


# Names


async def test_a_record_is_the_plain_string_at_collection_and_key(store: RedisStore, redis: Redis) -> None:
    await store.put_record(JOBS, "daily-report", b'{"a": 1}', expect=0, now=NOW)
    await store.put_record("lock", "cron:psj", b"me", expect=0, now=NOW)
    assert redis.execute("GET", "jobs:meta:daily-report") == '{"a": 1}\n'
    assert redis.execute("GET", "lock:cron:psj") == "me\n"


async def test_a_prefix_keeps_two_users_of_one_database_apart(redis: Redis) -> None:
    url = redis.fresh()
    first, second = redis_store(f"{url}?prefix=a:"), redis_store(f"{url}?prefix=b:")
    assert await first.put_record("c", "k", b"1", expect=0, now=NOW)
    assert await second.get_record("c", "k", now=NOW) is None
    assert redis.execute("GET", "a:c:k") == "1\n"
    await first.close()
    await second.close()


async def test_names_of_two_collections_that_meet_stay_with_the_first(store: RedisStore) -> None:
    written = await store.put_record("a", "b:c", b"1", expect=0, now=NOW)
    assert await store.get_record("a:b", "c", now=NOW) is None
    assert await store.put_record("a:b", "c", b"2", expect=0, now=NOW) is None
    assert not await store.delete_record("a:b", "c", expect=1, now=NOW)
    assert await store.get_record("a", "b:c", now=NOW) == written


# Strings of other programs


async def test_a_string_of_another_program_is_a_record_of_version_one(store: RedisStore, redis: Redis) -> None:
    redis.execute("SET", "jobs:meta:theirs", "x")
    assert await store.get_record(JOBS, "theirs", now=NOW) == Record("theirs", b"x", 1)
    assert await store.put_record(JOBS, "theirs", b"y", expect=0, now=NOW) is None
    assert await store.put_record(JOBS, "theirs", b"y", expect=1, now=NOW) == Record("theirs", b"y", 2)
    assert redis.execute("GET", "jobs:meta:theirs") == "y\n"


async def test_a_scan_finds_the_strings_of_other_programs_among_ours(store: RedisStore, redis: Redis) -> None:
    await store.put_record(JOBS, "b", b"ours", expect=0, now=NOW)
    await store.put_record("jobs", "meta-elsewhere", b"ours", expect=0, now=NOW)
    for key in ("jobs:meta:a", "jobs:meta:c*[x]", "jobs:metal", "xjobs:meta:d"):
        redis.execute("SET", key, "theirs")
    redis.execute("HSET", "jobs:meta:hash", "field", "value")
    found = await store.scan_records(JOBS, now=NOW)
    assert [(record.key, record.version) for record in found] == [("a", 1), ("b", 1), ("c*[x]", 1)]
    assert await store.scan_records(JOBS, now=NOW, after="a") == found[1:]
    assert await store.get_record(JOBS, "hash", now=NOW) is None
    assert await store.put_record(JOBS, "hash", b"", expect=0, now=NOW) is None


async def test_a_change_by_another_program_is_the_next_version(store: RedisStore, redis: Redis) -> None:
    await store.put_record(JOBS, "j", b"1", expect=0, now=NOW)
    for version, value in ((2, "2"), (3, "3")):
        redis.execute("SET", "jobs:meta:j", value)
        assert await store.get_record(JOBS, "j", now=NOW) == Record("j", value.encode(), version)
    redis.execute("SET", "jobs:meta:j", "4")
    assert await store.put_record(JOBS, "j", b"lost", expect=3, now=NOW) is None
    assert await store.scan_records(JOBS, now=NOW) == [Record("j", b"4", 4)]


async def test_a_string_that_another_program_removed_is_gone(store: RedisStore, redis: Redis) -> None:
    await store.put_record(JOBS, "j", b"1", expect=0, now=NOW)
    redis.execute("DEL", "jobs:meta:j")
    assert await store.scan_records(JOBS, now=NOW) == []
    assert await store.get_record(JOBS, "j", now=NOW) is None
    assert redis.execute("DBSIZE") == "0\n"
    assert await store.put_record(JOBS, "j", b"2", expect=0, now=NOW) == Record("j", b"2", 1)


# Expiry


async def test_the_server_removes_what_has_expired_with_all_that_belongs_to_it(store: RedisStore, redis: Redis) -> None:
    now = wall_ms()
    await store.put_record("c", "k", b"1", expect=0, now=now, expires_at=now + 60_000)
    for key in ("c:k", "mainspring:version:c:k"):
        assert redis.execute("PEXPIRETIME", key) == f"{now + 60_000}\n"
    await store.put_record("c", "k", b"2", expect=1, now=now)
    for key in ("c:k", "mainspring:version:c:k"):
        assert redis.execute("PTTL", key) == "-1\n"


async def test_a_record_of_a_simulated_past_lives_by_its_own_now(store: RedisStore, redis: Redis) -> None:
    written = await store.put_record("c", "k", b"1", expect=0, now=1_000, expires_at=2_000)
    assert await store.get_record("c", "k", now=1_999) == written
    assert await store.get_record("c", "k", now=2_000) is None
    assert 0 < int(redis.execute("PTTL", "c:k")) <= 3_600_000


async def test_collections_that_are_only_looked_up_have_no_index(store: RedisStore, redis: Redis) -> None:
    await store.put_record("idempotency", "k", b"1", expect=0, now=NOW)
    assert sorted(redis.execute("KEYS", "*").split()) == ["idempotency:k", "mainspring:version:idempotency:k"]
    with pytest.raises(Unsupported, match="looked up"):
        await store.scan_records("idempotency", now=NOW)


# Timers


async def test_timers_are_refused_with_the_reason(store: RedisStore) -> None:
    whole: Store = store
    calls = (
        whole.write([Put(timer("a"), 0)]),
        whole.get([]),
        whole.list_timers([], TimerFilter(), after=START, limit=1),
        whole.load_due(0, until=NOW, after=START, limit=1),
        whole.next_due([]),
        whole.begin([]),
        whole.finish([]),
        whole.history(timer("a").key),
        whole.prune_history(0, older_than=NOW, limit=1),
        whole.shards([]),
        whole.claim_shards([Shard(0)]),
        whole.release_shards([]),
    )
    for call in calls:
        with pytest.raises(Unsupported, match="records only"):
            await call


async def test_the_time_is_the_servers(store: RedisStore) -> None:
    assert abs(await store.time() - wall_ms()) < 5_000


# Trouble


@pytest.mark.server("redis")
async def test_the_store_recovers_when_the_server_returns(start_server: Callable[[str], Server]) -> None:
    server = start_server("redis")
    store = redis_store(server.url("0"))
    await store.open()
    await asyncio.gather(*(store.put_record("c", f"k{n}", b"1", expect=0, now=NOW) for n in range(30)))
    server.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="Expected to use redis://"):
            await store.get_record("c", "k1", now=NOW)
    server.start()
    found = await asyncio.gather(*(store.get_record("c", f"k{n}", now=NOW) for n in range(30)))
    assert found == [Record(f"k{n}", b"1", 1) for n in range(30)]
    await store.close()


@pytest.mark.server("redis")
async def test_a_server_that_does_not_answer_is_unavailable_in_time(start_server: Callable[[str], Server]) -> None:
    server = start_server("redis")
    store = redis_store(server.url("0"))
    await store.open()
    server.pause()
    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable):
            await store.put_record("c", "k", b"1", expect=0, now=NOW)
    server.resume()
    assert await store.put_record("c", "other", b"1", expect=0, now=NOW)
    await store.close()


async def test_a_wrong_password_is_told_at_the_start_without_the_password(redis: Redis) -> None:
    store = redis_store(redis.url("0").replace("//", "//someone:secret@"))
    with pytest.raises(ConfigError, match="credentials") as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    store = redis_store(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreUnavailable, match="Expected to use redis://"):
        await store.open()
    await store.close()
