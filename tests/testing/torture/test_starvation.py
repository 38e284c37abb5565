"""A machine that is too busy is not a fault of the servers on it."""

import os
import sys

from mainspring.testing.torture.starvation import Starvation, waited_for_processor_us


class Machine:
    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.waited_us: dict[int, int] = {7: 40, 8: 90_000_000}
        self.starvation = Starvation(lambda: self.now_us, self.waited_us.get)

    def look(self, *, after_us: int, waiting_us: int, pid: int = 7) -> tuple[int, int] | None:
        self.now_us += after_us
        self.waited_us[pid] += waiting_us
        return self.starvation.look(pid)


def test_a_process_that_waited_for_half_of_the_time_was_starved_for_all_of_it() -> None:
    machine = Machine()
    assert machine.look(after_us=0, waiting_us=0) is None
    assert machine.look(after_us=600_000, waiting_us=300_000) == (1_000_000, 1_600_000)
    assert machine.look(after_us=600_000, waiting_us=299_999) is None


def test_a_short_wait_is_added_to_what_follows() -> None:
    machine = Machine()
    machine.look(after_us=0, waiting_us=0)
    assert machine.look(after_us=100_000, waiting_us=100_000) is None
    assert machine.look(after_us=400_000, waiting_us=150_000) == (1_000_000, 1_500_000)


def test_what_another_process_has_waited_does_not_count() -> None:
    machine = Machine()
    machine.look(after_us=0, waiting_us=0)
    assert machine.look(after_us=600_000, waiting_us=0, pid=8) is None
    assert machine.look(after_us=600_000, waiting_us=0, pid=8) is None


def test_a_process_that_is_gone_was_not_starved() -> None:
    machine = Machine()
    machine.look(after_us=0, waiting_us=0)
    machine.waited_us.clear()
    machine.now_us += 600_000
    assert machine.starvation.look(7) is None


def test_linux_says_how_long_a_process_waited_and_nothing_of_one_that_is_not() -> None:
    waited = waited_for_processor_us(os.getpid())
    assert (waited is not None) == (sys.platform == "linux")
    assert waited is None or waited >= 0
    assert waited_for_processor_us(2**22 + 1) is None
