"""What other programs write into the registry is read generously, where it can mean only one thing."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mainspring.jobs.foreign import in_our_words, read_last_run, split, with_last_run
from mainspring.jobs.record import BrokenJob, Job, Routing
from mainspring.jobs.registry import read
from mainspring.model import Record, RetryPolicy

BASE: dict[str, Any] = {"schedule": "0 3 * * *", "url": "https://example.com/nightly"}
ROUTING = Routing("https://app.example/api/", "token")


def understood(**members: Any) -> Job | BrokenJob:
    value = json.dumps({**BASE, **members}).encode()
    return read(Record("nightly", value, 1), ROUTING, check_url=lambda _: None)


def definition(**members: Any) -> Any:
    job = understood(**members)
    assert isinstance(job, Job), job
    return job.definition


@pytest.mark.parametrize(
    "field",
    ["headers", "labels", "method", "timezone", "dst", "retryPolicy", "overlap", "catchup", "note", "body", "route"],
)
def test_null_is_absent(field: str) -> None:
    assert definition(**{field: None}) == definition()


def test_a_null_within_a_policy_is_absent_too() -> None:
    found = definition(retryPolicy={"maxAttempts": 5, "jitter": None}, dst={"onGap": "skip", "onOverlap": None})
    assert found.retry_policy == RetryPolicy(max_attempts=5)
    assert (found.dst.on_gap, found.dst.on_overlap) == ("skip", "first")


def test_words_are_known_in_any_case() -> None:
    found = definition(method="post", overlap="BufferOne", catchup="ALL")
    assert (found.method, found.overlap, found.catchup) == ("POST", "bufferOne", "all")


def test_numbers_and_truth_values_may_be_text() -> None:
    found = definition(timeoutSeconds="30", maxRuns="7", paused="true", startAt="1700000000000", jitterSeconds="1.5")
    assert (found.timeout_seconds, found.max_runs, found.paused, found.jitter_seconds) == (30.0, 7, True, 1.5)
    assert found.starts_at == 1_700_000_000_000
    assert definition(retryPolicy={"maxAttempts": "4"}).policy.max_attempts == 4
    assert definition(seconds=0, schedule="0 3 * * *").seconds is False


def test_headers_and_labels_may_have_numbers() -> None:
    found = definition(headers={"X-Count": 5, "X-Flag": True, "X-Not": None, "X-Text": "a"}, labels={"size": 2.5})
    assert found.headers == {"X-Count": "5", "X-Flag": "true", "X-Text": "a"}
    assert found.labels == {"size": "2.5"}


@pytest.mark.parametrize(
    ("route", "url", "token"),
    [
        ("/jobs/x", "https://app.example/api/jobs/x", True),
        ("jobs/x", "https://app.example/api/jobs/x", True),
        ("https://app.example/api/jobs/x?a=b", "https://app.example/api/jobs/x?a=b", True),
        ("https://app.example/apis/jobs/x", "https://app.example/apis/jobs/x", False),
        ("https://app.example.evil/api/x", "https://app.example.evil/api/x", False),
        ("https://other.example/x", "https://other.example/x", False),
    ],
)
def test_an_absolute_route_is_a_url_and_gets_our_token_only_below_the_base(
    route: str, url: str, *, token: bool
) -> None:
    for beside in ({}, {"url": ""}):
        value = json.dumps({"schedule": "@daily", "route": route, **beside}).encode()
        job = read(Record("nightly", value, 1), ROUTING, check_url=lambda _: None)
        assert isinstance(job, Job), job
        assert job.url == url
        assert (job.definition.url is None) is token


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"route": "https://app.example/api/../admin"}, "at most one of url and route"),
        ({"url": None, "route": "https://app.example/api/../admin"}, "with .. in it"),
        ({"route": "https://other.example/x"}, "at most one of url and route"),
        ({"timeoutSeconds": "long"}, "timeoutSeconds"),
        ({"method": "fetch"}, "method"),
        ({"headers": "none"}, "object"),
        ({"headers": {"a": ["b"]}}, "Expected"),
        ({"schedule": None}, "schedule"),
        ({"retryPolicy": {"attempts": 3}}, "attempts"),
    ],
)
def test_what_makes_no_sense_is_broken_all_the_same(members: dict[str, Any], problem: str) -> None:
    job = understood(**members)
    assert isinstance(job, BrokenJob)
    assert problem in job.problem


def test_the_last_run_is_no_part_of_the_definition() -> None:
    seals = {understood(lastRun=last_run).seal for last_run in (1, 1_700_000_000_000, "2026-01-01", None)}
    assert seals == {understood().seal}


WORDS = st.text('abcé"\\ \n', max_size=4)
VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS
MEMBERS = st.dictionaries(WORDS, VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(WORDS, VALUES, max_size=2))


@given(MEMBERS, st.integers(100_000_000_000, 4_000_000_000_000), st.booleans())
def test_writing_the_last_run_changes_nothing_else(members: dict[str, Any], instant: int, indented: bool) -> None:
    text = json.dumps(members, indent=2 if indented else None).encode()
    written = with_last_run(text, instant)
    assert json.loads(written) == {**members, "lastRun": instant}
    assert split(written)[0] == split(text)[0]
    assert read_last_run(split(written)[1]) == instant


@given(st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_whatever_is_in_a_record_nothing_is_raised_but_what_decoding_raises(text: bytes) -> None:
    split(text)
    read_last_run(Raw(text))
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        in_our_words(text, base_url="https://app.example")
