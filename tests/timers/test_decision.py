"""The table of answers: what each means for each kind of delivery."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from mainspring.delivery.call import Reply
from mainspring.delivery.webhook import retry_after_ms
from mainspring.kernel.carrier import Ending, conclude, put_aside
from mainspring.model import Delivery, Detail, Result, RetryPolicy, State, Timer
from mainspring.store import Put
from mainspring.timers.decision import decide, lost, read_wishes
from mainspring.timers.record import resumed
from mainspring.timers.views import view_of

LEAST, MOST = Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE
OK, FAILED, UNKNOWN = Result.SUCCEEDED, Result.FAILED, Result.UNKNOWN


def begun(delivery: Delivery = LEAST, attempts: int = 1) -> Timer:
    detail = Detail(
        execute_at=0, callback_url="http://a/", delivery_id="msg_a", created_at=0, updated_at=0, delivery=delivery
    )
    return Timer(
        shard_id=0,
        uuid="0",
        namespace="n",
        timer_id="t",
        due_at=0,
        detail=detail,
        state=State.RUNNING,
        attempts=attempts,
    )


def answered(status: int, body: bytes = b"", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        status=status, headers=named, body=body, truncated=False, problem="", detail="", sent=True, duration_ms=5
    )


def broken(problem: str, *, sent: bool) -> Reply:
    return Reply(
        status=None,
        headers={},
        body=b"",
        truncated=False,
        problem=problem,  # type: ignore[arg-type]
        detail="Expected an answer, got none",
        sent=sent,
        duration_ms=5,
    )


def judge(reply: Reply, timer: Timer | None = None, policy: RetryPolicy | None = None) -> Ending:
    return decide(
        timer or begun(),
        policy or RetryPolicy(),
        reply,
        read_wishes(reply, max_payload=1000),
        started_at=1000,
        spread=0.0,
        delivery_id="msg_next",
    )


@pytest.mark.parametrize(
    ("reply", "outcome", "at_least_once", "at_most_once"),
    [
        (answered(200), OK, "done", "done"),
        (answered(204), OK, "done", "done"),
        (answered(200, b'{"ok":true}'), OK, "done", "done"),
        (answered(200, b'{"something":"else"}'), OK, "done", "done"),
        (answered(200, b"[1,2]"), OK, "done", "done"),
        (answered(200, b'"ok: false"'), OK, "done", "done"),
        (answered(200, b"{not json"), OK, "done", "done"),
        (answered(200, b'{"ok":false}'), FAILED, "retry", "parked"),
        (answered(200, b'{"ok":"no"}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":"soon"}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":"2030-01-01T00:00:00Z"}'), OK, "rescheduled", "rescheduled"),
        (answered(200, b'{"ok":false,"nextExecuteAt":1900000000000}'), FAILED, "rescheduled", "rescheduled"),
        (answered(200, b'{"ok":true,"nextExecuteAt":null}'), OK, "done", "done"),
        (answered(200, b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}"), OK, "done", "done"),
        (answered(200, b'{"id":123456789012345678901234567890}'), OK, "done", "done"),
        (answered(200, b'{"nextExecuteAt":1900000000000,"payload":"\xff"}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":1900000000000,"payload":"\\u0000"}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":1900000000000,"payload":1e999}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":1,"payload":' + b"[" * 50 + b"]" * 50 + b"}"), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":"0001-01-01T00:00:00+23:59"}'), FAILED, "retry", "parked"),
        (answered(200, b'{"nextExecuteAt":"9999-12-31T23:59:59-23:59"}'), FAILED, "retry", "parked"),
        (answered(408), FAILED, "retry", "parked"),
        (answered(425), FAILED, "retry", "parked"),
        (answered(429), FAILED, "retry", "parked"),
        (answered(500), FAILED, "retry", "parked"),
        (answered(503), FAILED, "retry", "parked"),
        (answered(599), FAILED, "retry", "parked"),
        (answered(400), FAILED, "parked", "parked"),
        (answered(404), FAILED, "parked", "parked"),
        (answered(410), FAILED, "parked", "parked"),
        (answered(301, location="http://b/"), FAILED, "parked", "parked"),
        (answered(307, location="http://b/"), FAILED, "parked", "parked"),
        (broken("network", sent=False), FAILED, "retry", "retry"),
        (broken("timeout", sent=False), FAILED, "retry", "retry"),
        (broken("refused", sent=False), FAILED, "parked", "parked"),
        (broken("network", sent=True), UNKNOWN, "retry", "parked"),
        (broken("timeout", sent=True), UNKNOWN, "retry", "parked"),
        (broken("unreadable", sent=True), UNKNOWN, "retry", "parked"),
    ],
)
def test_every_answer_has_one_meaning(reply: Reply, outcome: Result, at_least_once: str, at_most_once: str) -> None:
    least, most = judge(reply), judge(reply, begun(MOST))
    assert (least.outcome, least.next) == (outcome, at_least_once)
    assert (most.outcome, most.next) == (outcome, at_most_once)


def test_an_unknown_outcome_says_what_may_have_happened() -> None:
    assert "may have acted" in judge(broken("timeout", sent=True)).detail
    assert "may have acted" not in judge(broken("network", sent=False)).detail


def test_a_reschedule_carries_time_payload_and_a_new_delivery() -> None:
    ending = judge(answered(200, b'{"nextExecuteAt":1900000000000,"payload":{"n": 2}}'))
    assert (ending.next_at, ending.payload, ending.delivery_id) == (1_900_000_000_000, '{"n": 2}', "msg_next")


def test_an_overlong_payload_in_an_answer_is_a_failure_that_is_retried() -> None:
    ending = judge(answered(200, b'{"nextExecuteAt":1900000000000,"payload":"' + b"x" * 2000 + b'"}'))
    assert (ending.outcome, ending.next) == (FAILED, "retry")


def test_a_truncated_answer_is_not_looked_into() -> None:
    ending = judge(replace(answered(200, b'{"ok":false}'), truncated=True))
    assert (ending.outcome, ending.next) == (OK, "done")


def test_the_answer_head_is_bounded_and_safe_to_show() -> None:
    ending = judge(answered(500, b"\xff" * 10_000))
    assert len(ending.answer_head) == 500


def test_retries_follow_the_policy_and_end_with_it() -> None:
    policy = RetryPolicy(max_attempts=3, initial_interval_seconds=1, backoff_multiplier=3, jitter=0)
    waits = [judge(answered(500), begun(attempts=n), policy).next_at for n in (1, 2, 3)]
    assert waits == [1005 + 1000, 1005 + 3000, None]
    last = judge(answered(500), begun(attempts=3), policy)
    assert (last.next, "No attempt is left" in last.detail) == ("parked", True)


def test_an_exhausted_policy_may_say_drop() -> None:
    assert judge(answered(400), policy=RetryPolicy(on_exhausted="drop")).next == "dropped"


def test_retry_after_is_obeyed_up_to_the_longest_interval() -> None:
    policy = RetryPolicy(initial_interval_seconds=1, max_interval_seconds=60, jitter=0)
    assert judge(answered(503, retry_after="30"), policy=policy).next_at == 1005 + 30_000
    assert judge(answered(503, retry_after="9999"), policy=policy).next_at == 1005 + 60_000
    assert judge(answered(503, retry_after="0"), policy=policy).next_at == 1005 + 1000


@pytest.mark.parametrize("value", ["", "soon", "-5", "1.5", "\u0663", "9" * 5000, "Wed, 99 Foo 2015 07:28:00 GMT"])
def test_a_senseless_retry_after_changes_little(value: str) -> None:
    assert 0 <= retry_after_ms(value, 0) <= 31_536_000_000


def test_retry_after_may_be_a_date() -> None:
    assert retry_after_ms("Thu, 01 Jan 1970 00:01:00 GMT", 10_000) == 50_000


def test_a_date_in_an_unknown_zone_is_read_as_universal_time_wherever_the_server_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_ms("Thu, 01 Jan 1970 00:01:00 -0000", 10_000) == 50_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("rules", "reply", "expected"),
    [
        (("404",), answered(404), "retry"),
        (("4xx",), answered(404), "retry"),
        (("404",), answered(503), "parked"),
        (("network",), broken("network", sent=True), "retry"),
        (("network",), broken("timeout", sent=True), "parked"),
        (("timeout",), broken("timeout", sent=True), "retry"),
        ((), answered(503), "parked"),
        (("3xx",), answered(302), "retry"),
    ],
)
def test_retry_on_overrides_what_is_retried(rules: tuple[str, ...], reply: Reply, expected: str) -> None:
    assert judge(reply, policy=RetryPolicy(retry_on=rules)).next == expected


def test_a_lost_attempt_is_unknown_and_repeated_at_once_only_if_the_owner_chose_so() -> None:
    least = lost(begun(), RetryPolicy(), now=5000, reason="Gone.")
    assert (least.outcome, least.next, least.next_at) == (UNKNOWN, "retry", 5000)
    most = lost(begun(MOST), RetryPolicy(), now=5000, reason="Gone.")
    assert (most.outcome, most.next) == (UNKNOWN, "parked")


@pytest.mark.parametrize(("asked", "granted"), [(0, 2005), (1000, 2005), (2004, 2005), (2006, 2006), (90_000, 90_000)])
def test_the_next_call_that_an_answer_asks_for_is_not_at_once(asked: int, granted: int) -> None:
    ending = judge(answered(200, b'{"nextExecuteAt":%d}' % asked))
    assert (ending.next, ending.next_at) == ("rescheduled", granted)


def test_answers_that_always_ask_for_a_moment_in_the_past_end_in_a_parked_timer() -> None:
    timer = begun()
    for number in range(1, 1000):
        ending = judge(answered(200, b'{"nextExecuteAt":0}'), timer)
        assert (ending.next, ending.hasty) == ("rescheduled", number)
        put = conclude(timer, timer, ending, fence=1).change
        assert isinstance(put, Put)
        timer = replace(put.timer, state=State.RUNNING, attempts=1)
    assert view_of(timer, None).hasty_reschedules == 999
    ending = judge(answered(200, b'{"nextExecuteAt":0}'), timer)
    assert (ending.outcome, ending.next) == (FAILED, "parked")
    assert "1000 times in a row" in ending.detail
    assert judge(answered(200, b'{"nextExecuteAt":1001}'), timer).hasty == 0
    assert resumed(replace(timer, state=State.PARKED), now=1).detail.hasty == 0


@pytest.mark.parametrize("delivery", [LEAST, MOST])
def test_a_call_that_was_not_made_for_want_of_a_descriptor_is_put_off_and_counts_as_nothing(delivery: Delivery) -> None:
    timer = begun(delivery, attempts=1)
    ending = judge(broken("exhausted", sent=False), timer, RetryPolicy(max_attempts=1))
    assert (ending.next, ending.is_attempt, ending.kept, ending.reachable) == ("retry", False, False, None)
    finish = conclude(timer, timer, ending, fence=1)
    assert finish.attempt is None
    assert isinstance(finish.change, Put)
    put_off = finish.change.timer
    assert (put_off.state, put_off.attempts, put_off.due_at) == (State.SCHEDULED, 0, ending.next_at)
    assert put_off.detail.first_attempt_at is None
    assert put_off.detail.execute_at == timer.detail.execute_at


def test_a_retry_that_was_not_made_keeps_its_number() -> None:
    timer = begun(attempts=3)
    finish = conclude(timer, timer, judge(broken("exhausted", sent=False), timer), fence=1)
    assert isinstance(finish.change, Put)
    assert (finish.change.timer.state, finish.change.timer.attempts) == (State.RETRYING, 2)


def test_a_timer_that_was_resumed_during_a_call_that_was_not_made_counts_none() -> None:
    timer = begun(attempts=1)
    current = resumed(replace(timer, state=State.PARKED), now=1)
    finish = conclude(timer, current, judge(broken("exhausted", sent=False), timer), fence=1)
    assert isinstance(finish.change, Put)
    assert (finish.change.timer.state, finish.change.timer.attempts) == (State.SCHEDULED, 0)


@pytest.mark.parametrize(("state", "attempts"), [(State.RUNNING, 2), (State.RETRYING, 3)])
def test_a_timer_that_is_put_aside_counts_the_attempts_that_were_made(state: State, attempts: int) -> None:
    timer = replace(begun(attempts=3), state=state)
    finish = conclude(timer, timer, put_aside(timer, 0, "The destination is gone."), fence=1)
    assert isinstance(finish.change, Put)
    assert (finish.change.timer.state, finish.change.timer.attempts) == (State.PARKED, attempts)
    assert finish.change.timer.detail.first_attempt_at is None
