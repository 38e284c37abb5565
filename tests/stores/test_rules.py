"""What changes and attempts come to, without any database."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.model import LAST_VERSION, Shard, State
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores import rules
from mainspring.stores.rules import Row
from mainspring.testing.timer_samples import key_of, timer

APPLIED, STALE, FENCED, UNAVAILABLE = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED, Verdict.UNAVAILABLE
A = key_of("a")


def test_a_row_that_is_begun_and_not_rewritten_is_only_counted() -> None:
    row: Row[str] = Row(7, "here")
    assert rules.begin(Begin(A, 3, 7), fence=3, row=row) is APPLIED
    assert rules.begin(Begin(A, 3, 8), fence=3, row=row) is APPLIED
    assert row == Row(9, "here", begins=2, fence=3)


def test_a_row_that_is_rewritten_and_begun_is_written_whole() -> None:
    row: Row[str] = Row(7, "here", begins=1)
    assert rules.change(Put(timer("a"), 7), row) is APPLIED
    assert rules.begin(Begin(A, 3, 8), fence=3, row=row) is APPLIED
    assert row.timer is not None
    assert (row.version, row.begins, row.timer.version) == (9, 0, 9)
    assert (row.timer.state, row.timer.attempts, row.timer.fence) == (State.RUNNING, 1, 3)


def test_a_row_that_is_made_and_removed_was_never_there() -> None:
    row: Row[str] = Row()
    assert rules.change(Put(replace(timer("a"), version=5), 0), row) is APPLIED
    assert row.version == 5
    assert rules.change(Remove(A, 5), row) is APPLIED
    assert row == Row()
    assert not row.is_removed
    assert rules.change(Remove(A, 0), row) is STALE


@pytest.mark.parametrize(
    ("fence", "row", "verdict"),
    [
        (None, Row(7), UNAVAILABLE),
        (None, None, UNAVAILABLE),
        (4, None, FENCED),
        (4, Row(7), FENCED),
        (3, None, UNAVAILABLE),
        (3, Row(8), STALE),
        (3, Row(), STALE),
        (3, Row(7), APPLIED),
    ],
)
def test_the_fence_is_asked_before_the_row(fence: int | None, row: Row[str] | None, verdict: Verdict) -> None:
    for _ in range(2):  # what is refused changes nothing
        copy = None if row is None else Row(row.version, row.place)
        assert rules.begin(Begin(A, 3, 7), fence=fence, row=row) is verdict
        assert rules.finish(Finish(A, 3, Remove(A, 7), None), fence=fence, row=copy) is verdict
        if verdict is APPLIED:
            break


def test_an_attempt_whose_row_is_another_by_now_ends_under_its_fence_only() -> None:
    assert rules.finish(Finish(A, 3, None, None), fence=3, row=None) is APPLIED
    assert rules.finish(Finish(A, 3, None, None), fence=4, row=None) is FENCED


def test_nothing_counts_on_from_the_last_version() -> None:
    assert rules.begin(Begin(A, 3, LAST_VERSION), fence=3, row=Row(LAST_VERSION)) is STALE
    assert rules.claim(Shard(0, LAST_VERSION, "a"), Shard(0, LAST_VERSION, "b")) is UNAVAILABLE
    row: Row[str] = Row(LAST_VERSION)
    assert rules.change(Put(replace(timer("a"), version=5), LAST_VERSION), row) is APPLIED
    assert row.version == 5


def test_a_shard_is_claimed_from_its_version_and_released_by_its_owner() -> None:
    assert rules.claim(Shard(0, 4, "a"), Shard(0, 4, "b")) == Shard(0, 5, "b")
    assert rules.claim(Shard(0, 5, "b"), Shard(0, 4, "c")) is STALE
    assert rules.release(Shard(0, 5, "b"), Shard(0, 5, "a")) is STALE
    assert rules.release(Shard(0, 5, "b"), Shard(0, 5, "b")) == Shard(0, 5, "")
