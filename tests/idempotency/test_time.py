"""The store's time, as a program that was frozen hears of it."""

from __future__ import annotations

from mainspring.clock import SystemClock
from mainspring.idempotency.claims import ASK_TRIES, StoreClock


class Watch(SystemClock):
    """Time that passes when it is told to."""

    seconds = 0.0
    offset_ms = 0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return round(self.seconds * 1000) + self.offset_ms

    def align(self, store_ms: int) -> None:
        self.offset_ms = store_ms - round(self.seconds * 1000)


async def test_an_answer_that_finds_the_program_frozen_is_not_taken_for_the_time() -> None:
    watch = Watch()
    freezes = [3.6, 0.01]

    async def time() -> int:
        told = round(watch.seconds * 1000)
        watch.seconds += freezes.pop(0)
        return told

    clock = StoreClock(watch)
    await clock.ask(time)
    assert freezes == []
    assert abs(clock.now_ms() - watch.seconds * 1000) < 50


async def test_a_store_that_is_always_slow_is_asked_a_few_times_and_then_believed() -> None:
    watch = Watch()
    asked = 0

    async def time() -> int:
        nonlocal asked
        asked += 1
        watch.seconds += 2.0
        return round(watch.seconds * 1000)

    clock = StoreClock(watch)
    assert await clock.ask(time) == 2000 * ASK_TRIES
    assert asked == ASK_TRIES
    assert not clock.is_stale
