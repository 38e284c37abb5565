"""Virtual time: it stands still or flows, can be moved ahead, and never goes back."""

from __future__ import annotations

from mainspring.clock import wall_ms
from mainspring.emulator.clock import VirtualClock

EPOCH_MS = 1_800_000_000_000


def test_it_starts_where_it_is_told_or_now() -> None:
    assert VirtualClock(at_ms=EPOCH_MS).now_ms() == EPOCH_MS
    assert abs(VirtualClock().now_ms() - wall_ms()) < 5000


def test_it_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(at_ms=EPOCH_MS)
    before = clock.monotonic()
    while clock.monotonic() == before:
        pass
    assert clock.now_ms() == EPOCH_MS
    clock.move_to(EPOCH_MS + 7_200_000)
    assert clock.now_ms() == EPOCH_MS + 7_200_000


def test_it_flows_and_is_moved_from_where_it_has_got() -> None:
    clock = VirtualClock(at_ms=EPOCH_MS, flows=True)
    before = clock.monotonic()
    while clock.monotonic() < before + 0.005:
        pass
    assert EPOCH_MS + 5 <= clock.now_ms() < EPOCH_MS + 60_000
    clock.move_to(EPOCH_MS + 7_200_000)
    assert EPOCH_MS + 7_200_000 <= clock.now_ms() < EPOCH_MS + 7_260_000


def test_neither_a_move_back_nor_the_store_changes_it() -> None:
    clock = VirtualClock(at_ms=EPOCH_MS)
    clock.move_to(EPOCH_MS - 1)
    clock.align(0)
    assert clock.now_ms() == EPOCH_MS
