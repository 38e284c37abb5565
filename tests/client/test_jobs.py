"""The jobs of the client: against a real server, against the fake, and what is not sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import pytest

from mainspring.client import AsyncClient, Client, Dst, RetryPolicy
from mainspring.errors import Conflict, InvalidInput, NetworkError, NotFound
from mainspring.jobs.messages import BackfillView, DeletedJobView
from mainspring.testing.fake_client import FakeMainspring
from mainspring.testing.target import Answer, TargetServer
from tests.support.running_server import Running
from tests.support.service_doubles import job_view, run_view

URL = "http://127.0.0.1:9/"
NEVER = "0 0 29 2 *"
"""So rarely that no test sees it."""
FAR = datetime(2036, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
async def client(server: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, server.token) as opened:
        yield opened


async def test_a_job_is_created_with_all_its_fields_and_read_back(client: AsyncClient) -> None:
    created = await client.jobs.create(
        "all-fields",
        "0 " + NEVER,
        seconds=True,
        timezone="Europe/Berlin",
        url=URL,
        method="PUT",
        headers={"X-Team": "blue"},
        body={"n": [1, 2.5, None], "ü": "✓"},
        timeout_seconds=5,
        retry_policy=RetryPolicy(max_attempts=3),
        overlap="bufferAll",
        catchup="all",
        catchup_window_seconds=60,
        dst=Dst(on_gap="skip"),
        jitter_seconds=2,
        start_at=FAR,
        end_at=FAR,
        max_runs=4,
        labels={"team": "blue"},
        paused=True,
        note="later",
        by="ann",
    )
    read = await client.jobs.get("all-fields")
    assert read == created
    assert (read.method, read.headers, read.overlap, read.catchup) == ("PUT", {"X-Team": "blue"}, "bufferAll", "all")
    assert (read.start_at, read.end_at, read.max_runs, read.dst) == (FAR, FAR, 4, Dst(on_gap="skip"))
    assert read.body == {"n": [1, 2.5, None], "ü": "✓"}
    assert (read.state, read.note, read.by, read.generation) == ("paused", "later", "ann", 1)


async def test_an_update_changes_what_is_given_and_keeps_the_rest(client: AsyncClient) -> None:
    created = await client.jobs.create("upd", NEVER, url=URL, body=1, labels={"a": "b"}, max_runs=3)
    changed = await client.jobs.update("upd", timezone="Asia/Kolkata", max_runs=None, body=None)
    assert (changed.timezone, changed.max_runs, changed.body) == ("Asia/Kolkata", None, None)
    assert (changed.schedule, changed.labels, changed.generation) == (created.schedule, {"a": "b"}, 2)
    with pytest.raises(Conflict):
        await client.jobs.update("upd", schedule="@daily", if_generation=1)


async def test_a_dry_run_checks_and_answers_and_writes_nothing(client: AsyncClient) -> None:
    would_be = await client.jobs.create("dry", NEVER, url=URL, dry_run=True)
    assert (would_be.name, would_be.state, would_be.generation) == ("dry", "scheduled", 1)
    with pytest.raises(InvalidInput):
        await client.jobs.create("dry", NEVER, url="http://10.0.0.1/", dry_run=True)
    with pytest.raises(NotFound):
        await client.jobs.update("dry", schedule="@daily", dry_run=True)
    await client.jobs.create("dry", NEVER, url=URL)
    with pytest.raises(Conflict):
        await client.jobs.create("dry", NEVER, url=URL, dry_run=True)
    assert (await client.jobs.update("dry", schedule="@daily", dry_run=True)).schedule == "@daily"
    assert (await client.jobs.get("dry")).schedule == NEVER


async def test_what_is_wrong_is_named_here_where_the_caller_is(client: AsyncClient) -> None:
    with pytest.raises(InvalidInput) as raised:
        await client.jobs.create("wrong", NEVER, url=URL, timeout_seconds=0, start_at=datetime(2027, 1, 1))  # noqa: DTZ001
    assert {error.pointer for error in raised.value.errors} == {"/timeoutSeconds", "/startAt"}
    with pytest.raises(InvalidInput, match="a date that exists"):
        await client.jobs.create("wrong", "0 0 30 2 *", url=URL)
    with pytest.raises(InvalidInput, match="JSON"):
        await client.jobs.create("wrong", NEVER, url=URL, body=object())


async def test_jobs_and_their_ledger_are_walked_page_by_page(client: AsyncClient) -> None:
    for number in range(3):
        await client.jobs.create(f"page-{number}", NEVER, url=URL, retry_policy=RetryPolicy(max_attempts=1))
    names = [job.name async for job in client.jobs.iterate(name_prefix="page-", page_size=2)]
    assert names == ["page-0", "page-1", "page-2"]
    launched = [await client.jobs.trigger("page-0", by="ann") for _ in range(3)]
    page = await client.jobs.runs("page-0", limit=2)
    assert page.next_cursor is not None
    found = [run.launch_id async for run in client.jobs.iterate_runs("page-0", kinds=("manual",))]
    assert sorted(found) == sorted(run.launch_id for run in launched)


async def test_a_preview_needs_no_job(client: AsyncClient) -> None:
    view = await client.jobs.preview(schedule="30 2 * * *", timezone="Europe/Berlin", from_=FAR, count=2)
    assert [str(instant.at) for instant in view.instants] == ["2036-01-03 01:30:00+00:00", "2036-01-04 01:30:00+00:00"]


def test_the_sync_client_has_the_same_life_of_a_job(server: Running) -> None:
    with Client(server.url, server.token) as client:
        client.jobs.create("sync-job", NEVER, url=URL)
        assert client.jobs.pause("sync-job", note="audit").state == "paused"
        assert client.jobs.resume("sync-job").state == "scheduled"
        since, until = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        assert client.jobs.backfill("sync-job", since=since, until=until, dry_run=True).launched == 2
        assert [job.name for job in client.jobs.iterate(name_prefix="sync-")] == ["sync-job"]
        with pytest.raises(NotFound, match="Run 'sync-job@5' does not exist"):
            client.jobs.rerun("sync-job@5", by="ann")
        assert client.jobs.delete("sync-job").job.name == "sync-job"
        with pytest.raises(NotFound):
            client.jobs.get("sync-job")


async def test_the_fake_keeps_jobs_and_runs_nothing() -> None:
    fake = await FakeMainspring.start()
    client = fake.async_client()
    created = await client.jobs.create("report", "@daily", url="https://example.com/")
    assert (created.state, created.last_run) == ("scheduled", None)
    with pytest.raises(Conflict):
        await client.jobs.create("report", "@daily", url="https://example.com/")
    assert (await client.jobs.trigger("report")).state == "planned"
    assert [run.kind async for run in client.jobs.iterate_runs("report")] == ["manual"]


# --- repeats ----------------------------------------------------------------------------------------------


LOST = Answer(behaviour="close")
Request = Callable[[AsyncClient], Awaitable[object]]
NOT_REPEATED: dict[str, Request] = {
    "create": lambda c: c.jobs.create("a", "@daily", url=URL),
    "update": lambda c: c.jobs.update("a", schedule="@daily", if_generation=1),
    "pause": lambda c: c.jobs.pause("a"),
    "resume": lambda c: c.jobs.resume("a"),
    "trigger": lambda c: c.jobs.trigger("a"),
    "backfill": lambda c: c.jobs.backfill("a", since=FAR, until=FAR),
    "rerun": lambda c: c.jobs.rerun("a@5"),
}
REPEATED: dict[str, tuple[Request, msgspec.Struct]] = {
    "get": (lambda c: c.jobs.get("a"), job_view("a")),
    "update": (lambda c: c.jobs.update("a", schedule="@daily"), job_view("a")),
    "delete": (lambda c: c.jobs.delete("a"), DeletedJobView(job=job_view("a"))),
    "backfill": (
        lambda c: c.jobs.backfill("a", since=FAR, until=FAR, dry_run=True),
        BackfillView(name="a", instants=0, launched=0, first=None, last=None, dry_run=True),
    ),
}


@pytest.mark.parametrize("verb", NOT_REPEATED)
async def test_what_would_do_more_the_second_time_is_not_sent_again(verb: str) -> None:
    async with TargetServer() as target:
        target.script(f"/v1/jobs/{verb}", LOST, Answer(body=msgspec.json.encode(run_view("a"))))
        async with AsyncClient(target.url, "token") as client:
            with pytest.raises(NetworkError) as raised:
                await NOT_REPEATED[verb](client)
        assert raised.value.outcome_unknown
        assert len(target.requests) == 1


@pytest.mark.parametrize("verb", REPEATED)
async def test_what_does_no_harm_is_sent_again(verb: str) -> None:
    request, view = REPEATED[verb]
    async with TargetServer() as target:
        target.script(f"/v1/jobs/{verb}", LOST, Answer(body=msgspec.json.encode(view)))
        async with AsyncClient(target.url, "token") as client:
            assert await request(client) == view
        assert len(target.requests) == 2
