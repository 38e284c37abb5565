"""Files of jobs, and how they differ from a registry: read, checked and compared without a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw, UnsetType

from mainspring.cli.job_difference import Step, steps
from mainspring.cli.job_file import JobFile, Wanted, read_jobs
from mainspring.errors import InvalidInput
from mainspring.jobs.messages import JobView
from tests.support.service_doubles import job_view

REPORT = """
[jobs.report]
schedule = "0 9 * * *"
url = "https://example.com/"
"""


def file_of(text: str) -> JobFile:
    return read_jobs(text.encode())


def wanted(text: str) -> Mapping[str, Wanted]:
    return file_of(text).jobs


def present(name: str = "report", **fields: object) -> JobView:
    return msgspec.structs.replace(job_view(name), **fields)


def planned(text: str, jobs: Iterable[JobView], *, prune: bool = True) -> list[Step]:
    return steps(file_of(text), jobs, prune=prune)


def changes(text: str, job: JobView) -> dict[str, tuple[object, object]]:
    found = planned(text, [job])
    return {change.field: (change.old, change.new) for step in found for change in step.changes}


def mistakes(text: str) -> dict[str, str]:
    with pytest.raises(InvalidInput) as raised:
        wanted(text)
    return {error.pointer: error.detail for error in raised.value.errors}


# --- reading ----------------------------------------------------------------------------------------------


def test_tables_a_list_and_json_are_the_same_file() -> None:
    listed = '[[jobs]]\nname = "report"\nschedule = "0 9 * * *"\nurl = "https://example.com/"\n'
    json_table = '{"jobs": {"report": {"schedule": "0 9 * * *", "url": "https://example.com/"}}}'
    json_list = '\n {"jobs": [{"name": "report", "schedule": "0 9 * * *", "url": "https://example.com/"}]}'
    files = [wanted(text) for text in (REPORT, listed, json_table, json_list)]
    assert [list(file) for file in files] == [["report"]] * 4
    assert [file["report"].job for file in files] == [files[0]["report"].job] * 4


def test_a_file_may_be_empty_of_jobs_but_not_of_the_word() -> None:
    assert wanted("[jobs]") == {}
    assert wanted('{"jobs": []}') == {}
    assert mistakes("") == {"/jobs": "required, but missing"}


def test_every_mistake_is_named_with_its_job() -> None:
    text = (
        REPORT
        + '[jobs.a]\nschedule = "0 0 30 2 *"\n'
        + '[jobs.b]\nschedule = "@daily"\ntimezone = "Europe/Berln"\n'
        + '[jobs.c]\nschedul = "@daily"\nmethod = "FETCH"\n'
        + '[jobs.d]\nschedule = "0 0 9 * * *"\n'
        + '[jobs.e]\nschedule = "@daily"\nretryPolicy = { maxAttempts = 0 }\n'
        + '[jobs."f g"]\nschedule = "@daily"\n'
        + '[jobs.h]\nschedule = "@daily"\nstartAt = 2027-01-01T00:00:00\n'
    )
    found = mistakes(text)
    assert set(found) == {
        "/jobs/a/schedule",
        "/jobs/b/timezone",
        "/jobs/c/schedul",
        "/jobs/c/schedule",
        "/jobs/c/method",
        "/jobs/d/schedule",
        "/jobs/e/retryPolicy/maxAttempts",
        "/jobs/f g/name",
        "/jobs/h/startAt",
    }
    assert found["/jobs/c/schedul"] == "unknown field; did you mean schedule?"
    assert "Europe/Berlin" in found["/jobs/b/timezone"]
    assert "seconds" in found["/jobs/d/schedule"]


def test_a_name_may_occur_once() -> None:
    one = '[[jobs]]\nname = "report"\nschedule = "@daily"\n'
    assert set(mistakes(one + one)) == {"/jobs/report/name"}
    with pytest.raises(InvalidInput, match="once"):
        wanted('{"jobs": {"a": {"schedule": "@daily"}, "a": {"schedule": "@daily"}}}')


@pytest.mark.parametrize("text", ["[jobs", "\x00", '{"jobs": ', "jobs = 1", '{"jobs": {"a": 1}}', "[job.a]"])
def test_what_is_no_file_of_jobs_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"Expected|not valid"):
        wanted(text)


# --- comparing --------------------------------------------------------------------------------------------


def test_a_job_that_is_as_the_file_has_it_needs_nothing() -> None:
    assert planned(REPORT, [present()]) == []


def test_new_jobs_are_created_changed_ones_updated_and_others_deleted_last() -> None:
    text = REPORT + '[jobs.another]\nschedule = "@daily"\n'
    found = planned(text, [present(schedule="0 8 * * *"), present("old")])
    assert [(step.kind, step.name) for step in found] == [
        ("create", "another"),
        ("update", "report"),
        ("delete", "old"),
    ]
    assert [step.kind for step in planned(text, [present("old")], prune=False)] == ["create", "create"]


def test_a_difference_is_told_field_by_field() -> None:
    text = REPORT + 'timezone = "Europe/Berlin"\nmaxRuns = 3\nbody = { n = 1 }\ndst = { onGap = "skip" }\n'
    assert changes(text, present(labels={"team": "blue"})) == {
        "timezone": ("UTC", "Europe/Berlin"),
        "maxRuns": (None, 3),
        "body": (None, {"n": 1}),
        "dst": ({"onGap": "shift", "onOverlap": "first"}, {"onGap": "skip", "onOverlap": "first"}),
        "labels": ({"team": "blue"}, {}),
    }


def test_a_credential_is_told_apart_and_not_told() -> None:
    text = REPORT + 'headers = { Authorization = "Bearer new", X-Team = "blue" }\n'
    old, new = changes(text, present(headers={"Authorization": "Bearer old"}))["headers"]
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    assert old["Authorization"] != new["Authorization"]
    assert "Bearer" not in f"{old}{new}"
    assert new["X-Team"] == "blue"


def test_what_means_the_same_is_no_difference() -> None:
    text = REPORT + "startAt = 2027-01-01T01:00:00+01:00\nendAt = 1900000000000\nbody = { b = 1, a = [1, 2] }\n"
    job = present(
        start_at=datetime(2027, 1, 1, tzinfo=UTC),
        end_at=datetime.fromtimestamp(1_900_000_000, UTC),
        body_json=Raw(b'{"a": [1, 2], "b": 1}'),
    )
    assert changes(text, job) == {}


@pytest.mark.parametrize(
    ("line", "state", "expected"),
    [
        ("", "paused", {}),
        ("paused = false", "paused", {"paused": (True, False)}),
        ("paused = true", "scheduled", {"paused": (False, True)}),
        ("paused = true", "paused", {}),
        ('paused = true\nnote = "later"', "paused", {"note": ("now", "later")}),
    ],
)
def test_a_pause_is_left_alone_unless_the_file_speaks_of_it(
    line: str, state: str, expected: dict[str, tuple[object, object]]
) -> None:
    assert changes(REPORT + line, present(state=state, note="now")) == expected


def test_a_broken_job_is_always_put_right() -> None:
    assert changes(REPORT, present(state="broken", problem="x")) == {"state": ("broken", "scheduled")}


def test_an_absent_body_is_absent() -> None:
    assert isinstance(wanted(REPORT)["report"].job.body, UnsetType)
