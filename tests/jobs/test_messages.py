"""What is said about a job: requests, views, keywords and the record list its settings, each in types of its own."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from mainspring.jobs.arguments import JobFields
from mainspring.jobs.difference import CONTENT
from mainspring.jobs.messages import CreateJob, JobView, UpdateJob
from mainspring.jobs.record import Definition

NOTES = {"paused", "note", "by"}


@pytest.mark.parametrize(
    ("fields", "beside"),
    [
        (UpdateJob.__struct_fields__, {"name", "if_generation", "dry_run"}),
        (
            Definition.__struct_fields__,
            NOTES | {"last_run", "paused_at", "resumed_at", "generation", "created_at", "updated_at"},
        ),
        ((*JobFields.__annotations__, "schedule"), set()),
    ],
    ids=["update", "record", "keywords"],
)
def test_a_job_has_the_same_settings_wherever_they_are_listed(fields: tuple[str, ...], beside: set[str]) -> None:
    assert set(fields) - beside == set(CONTENT)


def test_every_setting_of_a_job_is_shown() -> None:
    assert set(CONTENT.values()) <= set(JobView.__struct_encode_fields__)


def test_what_a_request_leaves_out_is_what_the_record_leaves_out() -> None:
    asked, kept = CreateJob(name="job", schedule="@daily"), Definition(schedule="@daily")
    shared = {*CONTENT, *NOTES}
    assert {name: getattr(asked, name) for name in shared} == {name: getattr(kept, name) for name in shared}


def test_what_an_update_leaves_out_stays_as_it_is() -> None:
    asked = UpdateJob(name="job")
    assert {getattr(asked, name) for name in CONTENT} == {UNSET}
