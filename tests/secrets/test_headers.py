"""Secrets in the headers and URLs of calls: written, sent, kept by an update, and not shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.secrets import HIDDEN, Secrets
from mainspring.errors import InvalidInput
from mainspring.fetches.messages import CreateFetch, FetchRef, ListFetches, OutboundRequest
from mainspring.jobs.messages import CreateJob, JobRef, ListJobs, PauseJob, UpdateJob
from mainspring.testing.target import TargetServer
from mainspring.timers.messages import (
    CreateTimer,
    CreateTimers,
    ListTimers,
    TimerRef,
    UpdateTimer,
)

SECRET = "Bearer abc-very-secret"
HEADERS = {"Authorization": SECRET, "X-Api-Key": "k-very-secret", "X-Team": "blue", "X-Tenant": "t-very-secret"}
SHOWN = {"Authorization": HIDDEN, "X-Api-Key": HIDDEN, "X-Team": "blue", "X-Tenant": HIDDEN}
URL = "http://127.0.0.1:9/hook?team=blue&access_token=u-very-secret"


@pytest.fixture
async def instance(tmp_path: Path) -> AsyncIterator[Instance]:
    config = Config(store="memory://", data_dir=str(tmp_path), allow_loopback=True, secret_names=("x-tenant",))
    async with Instance(config) as running:
        yield running


def timer(**fields: object) -> CreateTimer:
    return CreateTimer(**{"timer_id": "t", "delay_seconds": 3600.0, "callback_url": URL, "headers": HEADERS, **fields})  # type: ignore[arg-type]


async def test_secrets_of_a_timer_come_back_from_no_operation(instance: Instance) -> None:
    timers, ref = instance.timers, TimerRef(timer_id="t")
    batch = await timers.create_batch(CreateTimers(timers=(msgspec.Raw(msgspec.json.encode(timer(timer_id="b"))),)))
    views = [
        await timers.create(timer()),
        batch.results[0].timer,
        await timers.get(ref),
        await timers.update(UpdateTimer(timer_id="t", labels={"a": "b"})),
        await timers.run_now(ref),
        await timers.park(ref),
        await timers.resume(ref),
        *(await timers.list(ListTimers())).timers,
        (await timers.delete(ref)).timer,
    ]
    assert len(views) == 10
    for view in views:
        assert view is not None
        assert view.headers == SHOWN


async def test_secrets_of_a_job_come_back_from_no_operation(instance: Instance) -> None:
    jobs, ref = instance.jobs, JobRef(name="j")
    views = [
        await jobs.create(CreateJob(name="j", schedule="@daily", url=URL, headers=HEADERS)),
        await jobs.create(CreateJob(name="k", schedule="@daily", url=URL, headers=HEADERS, dry_run=True)),
        await jobs.get(ref),
        await jobs.update(UpdateJob(name="j", labels={"a": "b"})),
        await jobs.pause(PauseJob(name="j")),
        *(await jobs.list(ListJobs())).jobs,
        (await jobs.delete(ref)).job,
    ]
    assert len(views) == 7
    assert all(view.headers == SHOWN for view in views)


async def test_secrets_of_a_fetch_come_back_from_no_operation(instance: Instance) -> None:
    request = CreateFetch(request=OutboundRequest(url=URL, headers=HEADERS), req_id="f")
    created = await instance.fetches.create(request)
    got = await instance.fetches.get(FetchRef(req_id="f"))
    listed = await instance.fetches.list(ListFetches())
    for view in (created, got, listed):
        text = msgspec.json.encode(view).decode()
        assert SECRET not in text
        assert "k-very-secret" not in text
    await instance.fetches.cancel(FetchRef(req_id="f"))


async def test_a_hidden_value_that_is_sent_back_in_an_update_keeps_what_is_stored(instance: Instance) -> None:
    async with TargetServer() as target:
        created = await instance.timers.create(timer(callback_url=target.url))
        changed = {**created.headers, "X-Team": "red"}
        changed["AUTHORIZATION"] = changed.pop("Authorization")
        view = await instance.timers.update(UpdateTimer(timer_id="t", headers=changed, delay_seconds=0.0))
        assert view.headers["X-Team"] == "red"
        await target.wait_for(1)
        sent = target.requests[0].headers
        assert (sent["authorization"], sent["x-team"], sent["x-tenant"]) == (SECRET, "red", HEADERS["X-Tenant"])
        job = await instance.jobs.create(CreateJob(name="j", schedule="@yearly", url=target.url, headers=HEADERS))
        await instance.jobs.update(UpdateJob(name="j", headers={**job.headers, "X-Team": "red"}))
        [revealed] = (await instance.jobs.list(ListJobs(secrets=True))).jobs
        assert revealed.headers == {**HEADERS, "X-Team": "red"}


async def test_a_hidden_value_that_stands_for_nothing_is_refused_and_says_how_to_replace_it(instance: Instance) -> None:
    await instance.timers.create(timer(headers={}))
    await instance.jobs.create(CreateJob(name="j", schedule="@daily", url=URL))
    hidden = {"Authorization": HIDDEN}
    for attempt in (
        instance.timers.create(timer(headers=hidden)),
        instance.timers.update(UpdateTimer(timer_id="t", headers=hidden)),
        instance.timers.create(timer(callback_url=Secrets().shown_url(URL))),
        instance.timers.update(UpdateTimer(timer_id="t", callback_url="http://127.0.0.1:9/other?token=***")),
        instance.jobs.create(CreateJob(name="k", schedule="@daily", url=URL, headers=hidden)),
        instance.jobs.update(UpdateJob(name="j", headers=hidden)),
    ):
        with pytest.raises(InvalidInput, match="send the value itself") as refused:
            await attempt
        assert refused.value.errors
    fine = await instance.timers.create(timer(headers={"X-Stars": HIDDEN}))
    assert fine.headers == {"X-Stars": HIDDEN}


async def test_secrets_are_listed_when_they_are_asked_for(instance: Instance) -> None:
    await instance.timers.create(timer())
    await instance.jobs.create(CreateJob(name="j", schedule="@daily", url=URL, headers=HEADERS))
    [shown] = (await instance.timers.list(ListTimers(secrets=True))).timers
    assert (shown.headers, shown.callback_url) == (HEADERS, URL)
    [job] = (await instance.jobs.list(ListJobs(secrets=True))).jobs
    assert (job.headers, job.url) == (HEADERS, URL)


async def test_urls_are_listed_without_their_secrets_unless_a_setting_says_otherwise(tmp_path: Path) -> None:
    for redact, shown in ((True, "http://127.0.0.1:9/hook?team=blue&access_token=***"), (False, URL)):
        config = Config(store="memory://", data_dir=str(tmp_path), allow_loopback=True, redact_urls=redact)
        async with Instance(config) as instance:
            await instance.timers.create(timer())
            await instance.jobs.create(CreateJob(name="j", schedule="@daily", url=URL))
            await instance.fetches.create(CreateFetch(request=OutboundRequest(url=URL), req_id="f"))
            assert [view.callback_url for view in (await instance.timers.list(ListTimers())).timers] == [shown]
            assert [view.url for view in (await instance.jobs.list(ListJobs())).jobs] == [shown]
            assert [view.url for view in (await instance.fetches.list(ListFetches())).fetches] == [shown]
            assert (await instance.timers.get(TimerRef(timer_id="t"))).callback_url == URL
            assert (await instance.jobs.get(JobRef(name="j"))).url == URL
            kept = await instance.timers.update(UpdateTimer(timer_id="t", callback_url=shown))
            assert kept.callback_url == URL
            assert (await instance.jobs.update(UpdateJob(name="j", url=shown))).url == URL
            await instance.fetches.cancel(FetchRef(req_id="f"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/", "https://example.com/"),
        ("https://example.com/?a=1&b", "https://example.com/?a=1&b"),
        ("https://u:p@example.com/x", "https://***@example.com/x"),
        ("https://u@x.example/?API_KEY=1&key", "https://***@x.example/?API_KEY=***&key"),
        ("https://example.com/?sig=a%26b&Password=", "https://example.com/?sig=***&Password=***"),
        ("handler:remind", "handler:remind"),
        ("/route?token=1", "/route?token=***"),
        ("https://example.com/?mail=a@b.c", "https://example.com/?mail=a@b.c"),
    ],
)
def test_what_is_secret_in_a_url_is_not_shown(url: str, shown: str) -> None:
    assert Secrets().shown_url(url) == shown
    assert Secrets().shown_url(shown) == shown
