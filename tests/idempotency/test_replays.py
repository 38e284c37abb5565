"""What the ratio of replays tells."""

from __future__ import annotations

import logging

import pytest

from mainspring.idempotency import replays
from mainspring.idempotency.replays import SILENCE_CALLS, SILENCE_SECONDS, WINDOW_SECONDS, Replays


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _count(counts: Replays, executed: int, replayed: int) -> None:
    for _ in range(executed):
        counts.count_run()
    for _ in range(replayed):
        counts.count_replay()


@pytest.mark.parametrize(("executed", "replayed", "warns"), [(95, 5, False), (94, 7, True), (10, 9, False)])
def test_more_than_five_percent_of_replays_is_a_warning(
    executed: int, replayed: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    counts = Replays("charge", monotonic=watch)
    _count(counts, executed, replayed)
    assert caplog.records == []
    watch.now = WINDOW_SECONDS
    _count(counts, 1, 0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warns
    watch.now = 2 * WINDOW_SECONDS
    _count(counts, 200, 0)
    assert len(caplog.records) == warns, "each window stands for itself"


def test_no_replay_at_all_over_a_long_time_is_a_hint_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mainspring")
    watch = Watch()
    counts = Replays("charge", monotonic=watch)
    _count(counts, SILENCE_CALLS, 0)
    for _ in range(3):
        watch.now += SILENCE_SECONDS
        _count(counts, 1, 0)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_calls_are_counted_by_replay() -> None:
    before = dict(replays.processed.values)
    counts = Replays("charge")
    _count(counts, 2, 3)
    assert (counts.executed, counts.replayed) == (2, 3)
    assert replays.processed.values["yes"] == before.get("yes", 0) + 3
    assert 'mainspring_idempotency_processed_total{replay="no"}' in replays.processed.render()
