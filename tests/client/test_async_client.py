"""The async client against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw

from mainspring.client import AsyncClient, CreateTimer, RetryPolicy, State, to_payload
from mainspring.errors import Conflict, InvalidInput, NetworkError, NotFound, Unauthenticated
from tests.support.running_server import Running

CALLBACK = "http://127.0.0.1:9/"
FAR = datetime(2036, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
async def client(server: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, server.token) as opened:
        yield opened


async def test_a_timer_is_created_with_all_its_fields_and_read_back(client: AsyncClient) -> None:
    policy = RetryPolicy(max_attempts=3, schedule=(1.0, 2.0))
    created = await client.timers.create(
        "all-fields",
        callback_url=CALLBACK,
        execute_at=FAR,
        payload={"n": [1, 2.5, None], "ü": "✓"},
        headers={"X-Team": "blue"},
        labels={"team": "blue"},
        retry_policy=policy,
        callback_timeout_seconds=5,
    )
    read = await client.timers.get("all-fields")
    assert read == created
    assert (read.execute_at, read.retry_policy, read.headers, read.labels) == (
        FAR,
        policy,
        {"X-Team": "blue"},
        {"team": "blue"},
    )
    assert read.payload == {"n": [1, 2.5, None], "ü": "✓"}
    assert (read.state, read.generation, read.callback_timeout_seconds) == (State.SCHEDULED, 1, 5.0)


async def test_a_raw_payload_arrives_byte_for_byte(client: AsyncClient) -> None:
    created = await client.timers.create(
        "raw", callback_url=CALLBACK, delay_seconds=3600, payload=Raw(b'{"a":  1.0, "b":1e2}')
    )
    assert bytes(created.payload_json) == b'{"a":  1.0, "b":1e2}'


async def test_an_update_changes_what_is_given_and_keeps_the_rest(client: AsyncClient) -> None:
    await client.timers.create("upd", callback_url=CALLBACK, execute_at=FAR, payload=1, labels={"a": "b"})
    changed = await client.timers.update("upd", payload=None)
    assert (bytes(changed.payload_json), changed.labels, changed.execute_at, changed.generation) == (
        b"null",
        {"a": "b"},
        FAR,
        2,
    )
    with pytest.raises(Conflict) as caught:
        await client.timers.update("upd", if_generation=1, payload=2)
    assert caught.value.request_id
    assert not caught.value.outcome_unknown


async def test_delete_answers_the_timer_as_it_was_and_then_it_is_gone(client: AsyncClient) -> None:
    await client.timers.create("del", callback_url=CALLBACK, execute_at=FAR)
    assert (await client.timers.delete("del")).timer.timer_id == "del"
    with pytest.raises(NotFound):
        await client.timers.get("del")
    with pytest.raises(NotFound):
        await client.timers.delete("del")


async def test_wrong_input_names_every_wrong_field(client: AsyncClient) -> None:
    with pytest.raises(InvalidInput) as caught:
        await client.timers.create("x" * 256, callback_url=CALLBACK, delay_seconds=-1)
    assert {error.pointer for error in caught.value.errors} == {"/timerId", "/delaySeconds"}


async def test_an_instant_without_a_zone_and_an_unwritable_payload_are_refused_before_sending(
    client: AsyncClient,
) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        await client.timers.create("x", callback_url=CALLBACK, execute_at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="JSON"):
        await client.timers.create("x", callback_url=CALLBACK, delay_seconds=1, payload=object())


async def test_a_batch_has_a_result_for_each_timer(client: AsyncClient) -> None:
    good = CreateTimer(timer_id="batch-1", callback_url=CALLBACK, execute_at=FAR, payload=to_payload([1]))
    bad = CreateTimer(timer_id="batch-2", callback_url="ftp://x/y", execute_at=FAR)
    answer = await client.timers.create_batch([good, bad])
    assert (answer.created, answer.failed) == (1, 1)
    assert answer.results[0].timer is not None
    assert answer.results[1].problem is not None
    assert answer.results[1].problem.code == "invalid_input"


async def test_iterate_goes_through_all_pages_in_due_order(client: AsyncClient) -> None:
    timers = [
        CreateTimer(
            timer_id=f"page-{number}",
            callback_url=CALLBACK,
            execute_at=FAR + timedelta(seconds=number),
            labels={"set": "page"},
        )
        for number in range(25)
    ]
    await client.timers.create_batch(timers)
    found = [timer.timer_id async for timer in client.timers.iterate(page_size=10, labels={"set": "page"})]
    assert found == [f"page-{number}" for number in range(25)]
    one = await client.timers.list(limit=10, id_prefix="page-2", due_from=FAR + timedelta(seconds=21))
    assert [timer.timer_id for timer in one.timers] == ["page-21", "page-22", "page-23", "page-24"]


async def test_parked_timers_resume_and_bulk_verbs_act_on_what_matches(client: AsyncClient) -> None:
    for number in range(3):
        await client.timers.create(f"bulk-{number}", callback_url=CALLBACK, execute_at=FAR)
    assert (await client.timers.park("bulk-0")).state is State.PARKED
    assert (await client.timers.resume("bulk-0")).state is State.SCHEDULED
    counted = await client.timers.bulk_park(id_prefix="bulk-", dry_run=True)
    assert (counted.matched, counted.changed) == (3, 3)
    assert (await client.timers.stats()).parked == 0
    assert (await client.timers.bulk_park(id_prefix="bulk-")).changed == 3
    assert (await client.timers.bulk_resume(id_prefix="bulk-", states=[State.PARKED])).changed == 3
    assert (await client.timers.bulk_delete(id_prefix="bulk-")).changed == 3
    with pytest.raises(InvalidInput):
        await client.timers.bulk_delete()


async def test_run_now_leaves_an_attempt_in_the_history(client: AsyncClient) -> None:
    policy = RetryPolicy(max_attempts=1)
    await client.timers.create("now", callback_url=CALLBACK, execute_at=FAR, retry_policy=policy)
    await client.timers.run_now("now")
    async with asyncio.timeout(10):
        # Another process: there is no event to wait for.
        while not (page := await client.timers.history("now")).attempts:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert page.attempts[0].outcome == "failed"
    assert [attempt.attempt async for attempt in client.timers.iterate_history("now")] == [1]


async def test_namespaces_are_made_changed_and_listed(client: AsyncClient) -> None:
    made = await client.namespaces.create("billing", shard_count=4, host_limit=7)
    assert (made.shard_count, made.host_limit) == (4, 7)
    assert made.secret.startswith("whsec_")
    with pytest.raises(Conflict):
        await client.namespaces.create("billing")
    changed = await client.namespaces.update("billing", host_limit=None, retry_policy=RetryPolicy(max_attempts=2))
    assert (changed.host_limit, changed.retry_policy.max_attempts, changed.secret) == (None, 2, made.secret)
    assert await client.namespaces.get("billing") == changed
    assert {"billing", "default"} <= {namespace.name async for namespace in client.namespaces.iterate()}


async def test_the_server_tells_about_itself(client: AsyncClient) -> None:
    assert (await client.health()).status == "ok"
    assert (await client.ready()).status == "ready"
    shards = await client.shards()
    assert {shard.owner for shard in shards.shards if shard.namespace == "default"} == {shards.instance}
    assert "mainspring_" in await client.metrics()


async def test_a_wrong_token_is_an_authentication_error(server: Running) -> None:
    async with AsyncClient(server.url, "wrong") as client:
        with pytest.raises(Unauthenticated):
            await client.timers.get("x")


async def test_a_client_that_is_not_open_says_so(server: Running) -> None:
    client = AsyncClient(server.url, server.token)
    with pytest.raises(NetworkError, match=r"client is not open: use `async with AsyncClient\(\)"):
        await client.timers.get("x")
