"""What users do with timers, over a running instance and a real target."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mainspring.cluster.instance import Instance
from mainspring.delivery.signatures import verify
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model import Result, RetryPolicy, State
from mainspring.namespaces.messages import CreateNamespace, ListNamespaces, NamespaceRef, UpdateNamespace
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import (
    BulkTimers,
    CreateTimer,
    CreateTimers,
    ListHistory,
    ListTimers,
    TimerRef,
    TimerStats,
    TimerView,
    UpdateTimer,
)
from mainspring.wire import cursors
from mainspring.wire.strict_json import decode
from tests.timers.requests import URL, timer, until


def change(**fields: Any) -> UpdateTimer:
    return msgspec.json.decode(json.dumps({"timerId": "t", **fields}), type=UpdateTimer)


async def parked(instance: Instance, timer_id: str = "t") -> TimerView:
    async def is_parked() -> bool:
        return (await instance.timers.get(TimerRef(timer_id=timer_id))).state is State.PARKED

    await until(is_parked)
    return await instance.timers.get(TimerRef(timer_id=timer_id))


async def gone(instance: Instance, timer_id: str = "t") -> None:
    async def is_gone() -> bool:
        try:
            await instance.timers.get(TimerRef(timer_id=timer_id))
        except NotFound:
            return True
        return False

    await until(is_gone)


async def test_a_created_timer_is_there_as_it_was_asked_for(instance: Instance) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3653)
    view = await instance.timers.create(
        timer(executeAt=at.isoformat(), payload={"a": [1, 2.5, "é"]}, headers={"x-a": "b"}, labels={"k": "v"})
    )
    assert view == await instance.timers.get(TimerRef(timer_id="t"))
    assert (view.execute_at, view.state, view.generation, view.attempts) == (at, State.SCHEDULED, 1, 0)
    assert bytes(view.payload_json) == b'{"a": [1, 2.5, "\\u00e9"]}'


async def test_creating_again_replaces_and_counts_the_generation(instance: Instance) -> None:
    first = await instance.timers.create(timer(labels={"a": "1"}))
    second = await instance.timers.create(timer(payload=2))
    assert (second.generation, second.created_at, second.labels) == (2, first.created_at, {})
    assert second.delivery_id != first.delivery_id
    assert (await instance.timers.get(TimerRef(timer_id="t"))).generation == 2


async def test_an_update_keeps_what_it_does_not_name(instance: Instance) -> None:
    first = await instance.timers.create(timer(payload={"a": 1}, labels={"k": "v"}, headers={"x-a": "b"}))
    second = await instance.timers.update(change(labels={"k": "w"}))
    assert (second.payload, second.headers, second.execute_at) == (first.payload, first.headers, first.execute_at)
    assert (second.labels, second.generation, second.delivery_id) == ({"k": "w"}, 2, first.delivery_id)
    third = await instance.timers.update(change(payload=None, delaySeconds=60))
    assert (bytes(third.payload_json), third.generation) == (b"null", 3)
    assert third.delivery_id != first.delivery_id


async def test_an_update_of_another_generation_is_refused_and_changes_nothing(instance: Instance) -> None:
    before = await instance.timers.create(timer())
    with pytest.raises(Conflict, match="generation 7"):
        await instance.timers.update(change(ifGeneration=7, payload=1))
    assert await instance.timers.get(TimerRef(timer_id="t")) == before
    assert (await instance.timers.update(change(ifGeneration=1, payload=1))).generation == 2


async def test_what_does_not_exist_is_not_found(instance: Instance) -> None:
    ref = TimerRef(timer_id="nothing")
    service = instance.timers
    for call in (service.get, service.delete, service.run_now, service.park, service.resume):
        with pytest.raises(NotFound):
            await call(ref)
    with pytest.raises(NotFound):
        await service.update(change(payload=1))
    with pytest.raises(NotFound, match="Namespace 'nowhere' does not exist"):
        await service.create(timer(namespace="nowhere"))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"executeAt": "2030-01-01T00:00:00Z", "delaySeconds": 5}, "/delaySeconds"),
        ({"executeAt": "9999-12-31T23:59:59-23:59"}, "/executeAt"),
        ({"executeAt": "0001-01-01T00:00:00+23:59"}, "/executeAt"),
        ({"executeAt": "1969-12-31T23:59:59Z"}, "/executeAt"),
        ({"callbackUrl": "ftp://example.com/"}, "/callbackUrl"),
        ({"callbackUrl": "http://10.0.0.1/"}, "/callbackUrl"),
        ({"callbackUrl": "handler:remind"}, "/callbackUrl"),
        ({"headers": {"content-length": "5"}}, "/headers/content-length"),
        ({"headers": {"x-a": "b\r\nx-c: d"}}, "/headers/x-a"),
        ({"payload": "x" * 102_400}, "/payload"),
        ({"timerId": "a\u0007b"}, "/timerId"),
        ({"labels": {"a": "b\n"}}, "/labels"),
    ],
)
async def test_a_bad_timer_is_refused_by_field_and_nothing_is_stored(
    instance: Instance, fields: dict[str, Any], pointer: str
) -> None:
    request = timer(**{"timerId": "t", **({"delaySeconds": 5} if "executeAt" not in fields else {}), **fields})
    with pytest.raises(InvalidInput) as raised:
        await instance.timers.create(request)
    assert pointer in [error.pointer for error in raised.value.errors]
    assert (await instance.timers.list(ListTimers())).timers == ()


async def test_neither_time_is_refused(instance: Instance) -> None:
    with pytest.raises(InvalidInput, match="neither"):
        await instance.timers.create(CreateTimer(timer_id="t", callback_url=URL))


async def test_a_batch_answers_item_by_item(instance: Instance) -> None:
    items = [
        {"timerId": "a", "delaySeconds": 60, "callbackUrl": URL},
        {"timerId": "b", "delaySeconds": 60},
        {"timerId": "c", "delaySeconds": 60, "callbackUrl": "http://169.254.169.254/"},
        {"timerId": "a", "delaySeconds": 90, "callbackUrl": URL},
        {"timerId": "d", "namespace": "nowhere", "delaySeconds": 60, "callbackUrl": URL},
    ]
    answer = await instance.timers.create_batch(CreateTimers(timers=tuple(msgspec.Raw(json.dumps(i)) for i in items)))
    assert (answer.created, answer.failed) == (2, 3)
    problems = [result.problem.code if result.problem else None for result in answer.results]
    assert problems == [None, "invalid_input", "invalid_input", None, "not_found"]
    again = answer.results[3].timer
    assert again is not None
    assert again.generation == 2


async def test_a_nul_or_an_integer_of_65_bits_fails_its_item_of_a_batch_alone(instance: Instance) -> None:
    item = '{"timerId":"%s","delaySeconds":60,"callbackUrl":"http://a.example/","payload":%s}'
    payloads = {"a": "1", "nul": r'"\u0000"', "large": "18446744073709551616", "twice": '{"k":1,"k":2}', "b": "2"}
    items = ",".join(item % pair for pair in payloads.items())
    answer = await instance.timers.create_batch(decode(f'{{"timers":[{items}]}}'.encode(), CreateTimers))
    assert (answer.created, answer.failed) == (2, 3)
    problems = [result.problem.detail if result.problem else "" for result in answer.results]
    assert [bool(problem) for problem in problems] == [False, True, True, True, False]
    assert "NUL" in problems[1]
    assert "64-bit" in problems[2]


async def test_lists_are_filtered_ordered_and_paged(instance: Instance) -> None:
    for number in range(25):
        await instance.timers.create(
            timer(f"job-{number:02}", delaySeconds=1000 - number, labels={"parity": str(number % 2)})
        )
    await instance.timers.create(timer("other", delaySeconds=5000))
    found: list[str] = []
    cursor: Any = msgspec.UNSET
    while cursor is not None:
        page = await instance.timers.list(ListTimers(id_prefix="job-", labels={"parity": "1"}, limit=5, cursor=cursor))
        found += [view.timer_id for view in page.timers]
        cursor = page.next_cursor
    assert found == [f"job-{number:02}" for number in range(23, 0, -2)]
    for wrong in ("!!", cursors.write((2**63, "a")), cursors.write((1, "\0")), cursors.write("a")):
        with pytest.raises(InvalidInput, match="cursor"):
            await instance.timers.list(ListTimers(cursor=wrong))


async def test_a_request_looks_through_a_bounded_number_of_timers_and_the_next_one_goes_on(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.store.LOOK_ROWS", 20)
    monkeypatch.setattr("mainspring.store.LOOK_SHARD_ROWS", 2)
    for number in range(200):
        await instance.timers.create(timer(f"often-{number}", delaySeconds=1000 + number))
    await instance.timers.create(timer("rare", delaySeconds=5000))
    await instance.timers.create(timer("still", delaySeconds=5000))
    await instance.timers.park(TimerRef(timer_id="still"))
    first = await instance.timers.list(ListTimers(id_prefix="rare"))
    assert first.timers == ()
    assert first.next_cursor is not None
    found: list[str] = []
    cursor: Any = first.next_cursor
    while cursor is not None:
        page = await instance.timers.list(ListTimers(id_prefix="rare", cursor=cursor))
        found += [view.timer_id for view in page.timers]
        cursor = page.next_cursor
    assert found == ["rare"]
    parked = await instance.timers.list(ListTimers(states=(State.PARKED,)))
    assert [view.timer_id for view in parked.timers] == ["still"]
    assert parked.next_cursor is None
    assert (await instance.timers.bulk_delete(BulkTimers(id_prefix="rare"))).changed == 1


async def test_timers_are_counted_by_state(instance: Instance) -> None:
    for number in range(5):
        await instance.timers.create(timer(f"t{number}"))
    await instance.timers.park(TimerRef(timer_id="t1"))
    stats = await instance.timers.stats(TimerStats())
    counts = (stats.scheduled, stats.running, stats.retrying, stats.parked, stats.overdue, stats.counts_are_minimum)
    assert counts == (4, 0, 0, 1, 0, False)
    assert stats.next_due_at == (await instance.timers.get(TimerRef(timer_id="t0"))).execute_at
    with pytest.raises(NotFound):
        await instance.timers.stats(TimerStats(namespace="nowhere"))


async def test_a_count_of_very_many_timers_is_cut_short_and_says_so(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.timers.service.COUNT_LIMIT", 1)
    for number in range(3):
        await instance.timers.create(timer(f"t{number}"))
    assert (await instance.timers.stats(TimerStats())).counts_are_minimum


async def test_a_batch_says_how_many_of_its_timers_replace_others_and_so_does_a_dry_run(instance: Instance) -> None:
    await instance.timers.create(timer("there"))
    items = tuple(Raw(msgspec.json.encode(timer(name))) for name in ("there", "new", "new"))
    dry = await instance.timers.create_batch(CreateTimers(timers=items, dry_run=True))
    assert (dry.created, dry.replaced, dry.failed) == (3, 2, 0)
    with pytest.raises(NotFound):
        await instance.timers.get(TimerRef(timer_id="new"))
    wet = await instance.timers.create_batch(CreateTimers(timers=items))
    assert (wet.created, wet.replaced, wet.failed) == (3, 2, 0)


async def test_bulk_changes_say_what_they_would_do_first(instance: Instance) -> None:
    for number in range(12):
        await instance.timers.create(timer(f"t{number}", labels={"batch": str(number % 2)}))
    selection = {"labels": {"batch": "0"}}
    dry = await instance.timers.bulk_park(BulkTimers(**selection, dry_run=True))  # type: ignore[arg-type]
    assert (dry.matched, dry.changed) == (6, 6)
    assert (await instance.timers.list(ListTimers(states=(State.PARKED,)))).timers == ()
    assert (await instance.timers.bulk_park(BulkTimers(labels={"batch": "0"}))).changed == 6
    assert len((await instance.timers.list(ListTimers(states=(State.PARKED,)))).timers) == 6
    dry = await instance.timers.bulk_resume(BulkTimers(all=True, dry_run=True))
    assert (dry.matched, dry.changed) == (12, 6), "only parked ones can be resumed"
    dry = await instance.timers.bulk_delete(BulkTimers(all=True, dry_run=True))
    assert (dry.matched, dry.changed) == (12, 12)
    assert (await instance.timers.bulk_resume(BulkTimers(states=(State.PARKED,)))).changed == 6
    with pytest.raises(InvalidInput, match="all: true"):
        await instance.timers.bulk_delete(BulkTimers())
    assert (await instance.timers.bulk_delete(BulkTimers(all=True))).changed == 12
    assert (await instance.timers.list(ListTimers())).timers == ()


async def test_a_callback_carries_the_promised_body_and_headers(instance: Instance, target: TargetServer) -> None:
    created = await instance.timers.create(
        timer(callbackUrl=target.url + "/hook", delaySeconds=0, payload={"n": 1}, headers={"x-mine": "yes"})
    )
    await target.wait_for(1)
    [request] = target.requests
    body = json.loads(request.body)
    assert set(body) == {"namespace", "timerId", "executeAt", "attempt", "generation", "payload", "createdAt"}
    assert (body["timerId"], body["attempt"], body["generation"], body["payload"]) == ("t", 1, 1, {"n": 1})
    headers = request.headers
    assert headers["webhook-id"] == headers["idempotency-key"] == created.delivery_id
    assert (headers["mainspring-attempt"], headers["mainspring-max-attempts"], headers["x-mine"]) == ("1", "8", "yes")
    assert headers["traceparent"].startswith("00-" + created.delivery_id[-32:])
    assert int(headers["mainspring-fence"]) >= 1
    secret = (await instance.namespaces.get(NamespaceRef(name="default"))).secret
    verify([secret], headers, request.body, now=int(headers["webhook-timestamp"]))
    await gone(instance)
    [attempt] = (await instance.timers.history(ListHistory(timer_id="t"))).attempts
    assert (attempt.outcome, attempt.status, attempt.next) == (Result.SUCCEEDED, 200, "done")


async def test_a_failing_receiver_is_retried_then_parked_and_can_be_resumed(
    instance: Instance, target: TargetServer
) -> None:
    target.script("/hook", *[Answer(status=503)] * 3, Answer())
    policy = {"maxAttempts": 3, "initialIntervalSeconds": 0.02, "jitter": 0}
    await instance.timers.create(timer(callbackUrl=target.url + "/hook", delaySeconds=0, retryPolicy=policy))
    view = await parked(instance)
    assert (view.attempts, view.last_outcome and view.last_outcome.status) == (3, 503)
    history = (await instance.timers.history(ListHistory(timer_id="t"))).attempts
    assert [(entry.attempt, entry.next) for entry in history] == [(3, "parked"), (2, "retry"), (1, "retry")]
    failed = await instance.timers.history(ListHistory(timer_id="t", outcomes=(Result.SUCCEEDED,)))
    assert failed.attempts == ()
    await instance.timers.resume(TimerRef(timer_id="t"))
    await gone(instance)
    assert len({request.headers["webhook-id"] for request in target.requests}) == 1


async def test_the_receiver_may_ask_for_another_time_with_another_payload(
    instance: Instance, target: TargetServer
) -> None:
    soon = (datetime.now(UTC) + timedelta(milliseconds=300)).isoformat()
    answer = json.dumps({"ok": True, "nextExecuteAt": soon, "payload": {"n": 2}}).encode()
    target.script("/hook", Answer(body=answer), Answer())
    await instance.timers.create(timer(callbackUrl=target.url + "/hook", delaySeconds=0, payload={"n": 1}))
    await target.wait_for(2)
    first, second = (json.loads(request.body) for request in target.requests)
    assert (first["payload"], second["payload"]) == ({"n": 1}, {"n": 2})
    assert (second["generation"], second["attempt"]) == (2, 1)
    assert target.requests[0].headers["webhook-id"] != target.requests[1].headers["webhook-id"]


async def test_410_parks_the_destination_until_one_of_its_timers_is_resumed(
    instance: Instance, target: TargetServer
) -> None:
    target.script("/gone", Answer(status=410), Answer())
    await instance.timers.create(timer("a", callbackUrl=target.url + "/gone", delaySeconds=0))
    await parked(instance, "a")
    await instance.timers.create(timer("b", callbackUrl=target.url + "/gone", delaySeconds=0))
    view = await parked(instance, "b")
    assert view.last_outcome is not None
    assert "410" in view.last_outcome.detail
    assert len(target.requests) == 1
    await instance.timers.resume(TimerRef(timer_id="b"))
    await gone(instance, "b")


async def test_run_now_fires_at_once_and_a_running_timer_cannot_be_run(
    instance: Instance, target: TargetServer
) -> None:
    target.script("/hook", Answer(delay_seconds=0.5))
    await instance.timers.create(timer(callbackUrl=target.url + "/hook"))
    await instance.timers.run_now(TimerRef(timer_id="t"))
    await target.wait_for(1)
    with pytest.raises(Conflict, match="in flight"):
        await instance.timers.run_now(TimerRef(timer_id="t"))
    deleted = await instance.timers.delete(TimerRef(timer_id="t"))
    assert deleted.timer.state is State.RUNNING
    await asyncio.sleep(0.7)
    [attempt] = (await instance.timers.history(ListHistory(timer_id="t"))).attempts
    assert attempt.next == "superseded"


async def test_a_due_time_in_the_past_fires_at_once(instance: Instance, target: TargetServer) -> None:
    await instance.timers.create(timer(callbackUrl=target.url + "/hook", executeAt="1999-12-31T23:59:59Z"))
    await target.wait_for(1, seconds=2)
    assert json.loads(target.requests[0].body)["executeAt"] == "1999-12-31T23:59:59Z"


async def test_namespaces_have_their_own_shards_defaults_and_rotating_secrets(
    instance: Instance, target: TargetServer
) -> None:
    made = await instance.namespaces.create(
        CreateNamespace(name="billing", shard_count=5, retry_policy=RetryPolicy(max_attempts=1))
    )
    default = await instance.namespaces.get(NamespaceRef(name="default"))
    assert made.first_shard >= default.first_shard + default.shard_count
    with pytest.raises(Conflict):
        await instance.namespaces.create(CreateNamespace(name="billing"))
    new_secret = default.secret
    rotated = await instance.namespaces.update(UpdateNamespace(name="billing", secret=new_secret, host_limit=3))
    assert (rotated.secret, rotated.host_limit, rotated.retry_policy) == (new_secret, 3, made.retry_policy)
    target.script("/hook", Answer(status=500))
    await instance.timers.create(timer(namespace="billing", callbackUrl=target.url + "/hook", delaySeconds=0))
    await target.wait_for(1)
    [request] = target.requests
    for secret in (made.secret, new_secret):
        verify([secret], request.headers, request.body, now=int(request.headers["webhook-timestamp"]))
    assert request.headers["mainspring-max-attempts"] == "1"
    names = [view.name for view in (await instance.namespaces.list(ListNamespaces())).namespaces]
    assert names == ["billing", "default"]


async def test_bulk_park_counts_each_timer_once_however_many_pages_there_are(instance: Instance) -> None:
    items = [msgspec.Raw(json.dumps({"timerId": f"t{n}", "delaySeconds": 60, "callbackUrl": URL})) for n in range(600)]
    await instance.timers.create_batch(CreateTimers(timers=tuple(items)))
    answer = await instance.timers.bulk_park(BulkTimers(all=True))
    assert (answer.matched, answer.changed) == (600, 600)
    assert (await instance.timers.bulk_park(BulkTimers(all=True, dry_run=True))).matched == 0
    answer = await instance.timers.bulk_resume(BulkTimers(all=True))
    assert (answer.matched, answer.changed) == (600, 600)


async def test_a_timer_parked_during_a_call_that_reschedules_it_stays_parked(
    instance: Instance, target: TargetServer
) -> None:
    answer = json.dumps({"nextExecuteAt": "2040-01-01T00:00:00Z"}).encode()
    target.script("/hook", Answer(body=answer, delay_seconds=0.3))
    await instance.timers.create(timer(callbackUrl=target.url + "/hook", delaySeconds=0))
    await target.wait_for(1)
    await instance.timers.park(TimerRef(timer_id="t"))

    async def is_rescheduled() -> bool:
        return (await instance.timers.get(TimerRef(timer_id="t"))).execute_at.year == 2040

    await until(is_rescheduled)
    view = await instance.timers.get(TimerRef(timer_id="t"))
    assert (view.state, view.next_attempt_at) == (State.PARKED, None)
    resumed = await instance.timers.resume(TimerRef(timer_id="t"))
    assert (resumed.state, resumed.next_attempt_at) == (State.SCHEDULED, view.execute_at)


async def test_filtered_history_goes_on_behind_its_pages(instance: Instance, target: TargetServer) -> None:
    target.script("/hook", *[Answer(status=503)] * 4, Answer())
    policy = {"maxAttempts": 9, "initialIntervalSeconds": 0.01, "backoffMultiplier": 1, "jitter": 0}
    await instance.timers.create(timer(callbackUrl=target.url + "/hook", delaySeconds=0, retryPolicy=policy))
    await gone(instance)
    found: list[int] = []
    cursor: Any = msgspec.UNSET
    while cursor is not None:
        page = await instance.timers.history(
            ListHistory(timer_id="t", outcomes=(Result.FAILED,), limit=1, cursor=cursor)
        )
        found += [entry.attempt for entry in page.attempts]
        cursor = page.next_cursor
    assert found == [4, 3, 2, 1]


HIDDEN = {
    "right-to-left override": "pay\u202efdp.exe",
    "right-to-left isolate": "a\u2067b",
    "right-to-left mark": "a\u200fb",
    "Arabic letter mark": "a\u061cb",
    "line feed": "a\nb",
    "escape": "a\x1b[2Jb",
    "control sequence introducer": "a\x9b2Jb",
    "line separator": "a\u2028b",
    "zero-width space": "a\u200bb",
    "byte order mark": "a\ufeffb",
    "tag": "a\U000e0041b",
    "hangul filler": "a\u3164b",
    "halfwidth filler": "a\uffa0b",
    "grapheme joiner": "a\u034fb",
    "soft hyphen": "a\xadb",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
async def test_an_id_or_a_label_that_does_not_look_like_what_it_is_is_refused(instance: Instance, text: str) -> None:
    with pytest.raises(InvalidInput) as wrong_id:
        await instance.timers.create(timer(text))
    assert [error.pointer for error in wrong_id.value.errors] == ["/timerId"]
    with pytest.raises(InvalidInput) as wrong_label:
        await instance.timers.create(timer(labels={"customer": text}))
    assert [error.pointer for error in wrong_label.value.errors] == ["/labels"]


async def test_an_id_may_be_in_any_script(instance: Instance) -> None:
    for text in ("שלום", "مهلت", "時計", "größe 1/2", "🕰", "❤\ufe0f", "می‌خواهم"):
        assert (await instance.timers.create(timer(text))).timer_id == text


async def test_a_batch_that_names_one_id_a_thousand_times_is_one_write_and_the_last_stands(instance: Instance) -> None:
    far = "2100-01-01T00:00:00Z"
    one = {"timerId": "same", "callbackUrl": URL, "executeAt": far}
    raw = tuple(msgspec.Raw(json.dumps(one | {"payload": n}).encode()) for n in range(1000))
    other = msgspec.Raw(json.dumps(one | {"timerId": "other"}).encode())
    began = time.monotonic()
    batch = await instance.timers.create_batch(CreateTimers(timers=(*raw[:999], other)))
    assert time.monotonic() - began < 2.0
    assert (batch.created, batch.failed) == (1000, 0)
    generations = [item.timer.generation for item in batch.results[:-1] if item.timer]
    assert generations == list(range(1, 1000))
    stored = await instance.timers.get(TimerRef(timer_id="same"))
    assert (stored.payload, stored.generation) == (998, 999)
    again = await instance.timers.create_batch(CreateTimers(timers=(raw[0], raw[1])))
    assert [item.timer.generation for item in again.results if item.timer] == [1000, 1001]


async def test_a_list_of_large_timers_comes_in_pages_that_are_bounded_in_bytes(instance: Instance) -> None:
    payload = msgspec.Raw(b'"%b"' % (b"x" * 100_000))
    for start in range(0, 120, 6):
        fields = {"callbackUrl": URL, "executeAt": "2100-01-01T00:00:00Z", "payload": payload}
        batch = tuple(msgspec.Raw(msgspec.json.encode({"timerId": f"t{n}", **fields})) for n in range(start, start + 6))
        assert (await instance.timers.create_batch(CreateTimers(timers=batch))).failed == 0
    seen: list[str] = []
    request = ListTimers(limit=1000)
    while True:
        page = await instance.timers.list(request)
        assert len(page.timers) < 100
        seen += [view.timer_id for view in page.timers]
        if page.next_cursor is None:
            break
        request = ListTimers(limit=1000, cursor=page.next_cursor)
    assert sorted(seen) == sorted(f"t{n}" for n in range(120))


@pytest.mark.slow
async def test_large_timers_that_are_due_together_all_fire(instance: Instance, target: TargetServer) -> None:
    """More than one page holds in bytes, in one shard."""
    await instance.namespaces.create(CreateNamespace(name="one", shard_count=1))
    at = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    payload = msgspec.Raw(b'"%b"' % (b"x" * 100_000))
    fields = {"namespace": "one", "callbackUrl": f"{target.url}/ok", "executeAt": at, "payload": payload}
    for start in range(0, 120, 6):
        batch = tuple(msgspec.Raw(msgspec.json.encode({"timerId": f"t{n}", **fields})) for n in range(start, start + 6))
        assert (await instance.timers.create_batch(CreateTimers(timers=batch))).failed == 0
    await target.wait_for(120, seconds=30)
