"""The failure table: what each way to end is called, whether it is definite, and what it says."""

from __future__ import annotations

import socket

import pytest

from mainspring.cluster.instance import Instance
from mainspring.delivery.call import Problem, Reply
from mainspring.fetches.messages import Method
from mainspring.fetches.outcome import (
    MAY_HAVE_CHANGED,
    Failure,
    of_cancelling,
    of_lost_executor,
    of_reply,
    of_silence,
)
from mainspring.testing.target import TargetServer
from tests.support.fetch_requests import asking, ended

EFFECTFUL: tuple[Method, ...] = ("POST", "PUT", "PATCH", "DELETE")
SAFE: tuple[Method, ...] = ("GET", "HEAD", "OPTIONS")


def _reply(problem: Problem, *, sent: bool) -> Reply:
    return Reply(None, {}, b"", False, problem, "It broke", sent, 5)


def _failure(problem: Problem, method: Method, *, sent: bool) -> tuple[str, Failure]:
    outcome = of_reply(_reply(problem, sent=sent), method=method, url="", redirected=False, finished_at=0)
    assert outcome.response is None
    assert outcome.failure is not None
    return outcome.state, outcome.failure


@pytest.mark.parametrize("method", [*SAFE, *EFFECTFUL])
@pytest.mark.parametrize("problem", ["network", "timeout", "refused"])
def test_what_was_never_sent_has_failed_for_certain(problem: Problem, method: Method) -> None:
    state, failure = _failure(problem, method, sent=False)
    assert (state, failure.kind, failure.definite) == ("failed", problem, True)
    assert failure.message == "It broke. Nothing was sent."


@pytest.mark.parametrize("method", EFFECTFUL)
@pytest.mark.parametrize("problem", ["network", "timeout", "unreadable"])
def test_an_effect_that_was_sent_and_not_answered_is_unknown_and_says_so(problem: Problem, method: Method) -> None:
    state, failure = _failure(problem, method, sent=True)
    assert (state, failure.kind, failure.definite) == ("unknown", problem, False)
    assert failure.message == f"It broke. {MAY_HAVE_CHANGED}"


@pytest.mark.parametrize("method", SAFE)
@pytest.mark.parametrize("problem", ["timeout", "unreadable"])
def test_a_safe_method_without_a_response_has_failed(problem: Problem, method: Method) -> None:
    state, failure = _failure(problem, method, sent=True)
    assert (state, failure.kind, failure.definite) == ("failed", problem, True)
    assert "changes nothing" in failure.message


@pytest.mark.parametrize("method", SAFE)
def test_a_connection_that_breaks_after_sending_is_unknown_for_every_method(method: Method) -> None:
    state, failure = _failure("network", method, sent=True)
    assert (state, failure.kind, failure.definite) == ("unknown", "network", False)


def test_silence_and_dead_executors_are_unknown_and_name_the_executor() -> None:
    for outcome in (
        of_silence("box-7", started_at=0, watchdog_at=40_000, now=40_001),
        of_lost_executor("box-7", started_at=0, now=40_001),
    ):
        assert outcome.failure is not None
        assert (outcome.state, outcome.failure.kind, outcome.failure.definite) == ("unknown", "watchdog", False)
        assert "box-7" in outcome.failure.message
        assert MAY_HAVE_CHANGED in outcome.failure.message
        assert outcome.duration_ms == 40_001


def test_a_cancelled_fetch_says_whether_the_call_was_under_way() -> None:
    before = of_cancelling(started_at=None, now=9)
    during = of_cancelling(started_at=4, now=9)
    assert before.failure == Failure(kind="cancelled", message="Cancelled before it was sent.", definite=True)
    assert during.failure is not None
    assert not during.failure.definite
    assert during.failure.message.endswith(MAY_HAVE_CHANGED)
    assert (before.state, during.state) == ("cancelled", "cancelled")


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/status/503", "POST", ("succeeded", None, None)),
        ("/status/404", "GET", ("succeeded", None, None)),
        ("/redirect", "GET", ("succeeded", None, None)),
        ("/hang", "POST", ("unknown", "timeout", False)),
        ("/hang", "GET", ("failed", "timeout", True)),
        ("/reset", "POST", ("unknown", "network", False)),
        ("/close", "GET", ("unknown", "network", False)),
        ("/close-after-headers", "PUT", ("succeeded", None, None)),
        ("/garbage", "POST", ("unknown", "unreadable", False)),
        ("/garbage", "GET", ("failed", "unreadable", True)),
    ],
)
async def test_a_real_target_that_misbehaves_gives_the_outcome_of_the_table(
    instance: Instance, target: TargetServer, path: str, method: Method, expected: tuple[str, str | None, bool | None]
) -> None:
    asked = await instance.fetches.create(asking(target.url + path, method, timeout_seconds=0.3))
    view = await ended(instance.fetches, asked.req_id)
    assert view.result is not None
    error = view.result.error
    assert (view.state, error and error.kind, error and error.definite) == expected
    assert len(target.requests) == 1


async def test_what_cannot_be_reached_has_failed_for_certain(instance: Instance, target: TargetServer) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        no_tls = f"https://127.0.0.1:{target.port}/"
        for url, kind in ((nobody, "network"), (no_tls, "timeout")):
            asked = await instance.fetches.create(asking(url, "POST", timeout_seconds=0.3))
            view = await ended(instance.fetches, asked.req_id)
            assert view.result is not None
            assert view.result.error is not None
            assert (view.state, view.result.error.kind, view.result.error.definite) == ("failed", kind, True)
            assert view.result.error.message.endswith("Nothing was sent.")
