"""Places that hosts share: who gets the next one, and what is remembered of whom."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.fetches.places import HOSTS_KEPT, PATIENCE_SECONDS, Places
from mainspring.kernel.shares import Tier
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated


def _places(loop: SimulatedLoop, limit: int, *proven: str, host_limit: int = 1000) -> Places:
    places = Places(limit, host_limit=host_limit, clock=SimulatedClock(loop))
    for host in proven:
        places.give_back(host, places.take(host), reachable=True)
    return places


def _fill(places: Places, host: str) -> int:
    """Take all that a host may have."""
    return len(_taken(places, host))


def _taken(places: Places, host: str) -> list[int]:
    taken = []
    while places.ask(host):
        taken.append(places.take(host))
    return taken


def test_a_host_takes_no_more_than_it_leaves_to_others_and_the_last_place_goes_to_one_without() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 5, "a", "b", "c", "d")
        assert [_fill(places, host) for host in "abcd"] == [2, 2, 1, 0]
        assert (places.free, places.taken) == (0, 5)

    run_simulated(main)


def test_the_next_place_is_for_the_first_in_line_and_not_for_who_gave_it_back() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 1, "a", "b", "c")
        [place] = _taken(places, "a")
        assert (places.ask("b"), places.ask("c")) == (0, 0)
        places.give_back("a", place, reachable=True)
        assert places.first_in_line == ("b",)
        assert (places.ask("a"), places.ask("c"), places.ask("b")) == (0, 0, 1)

    run_simulated(main)


def test_who_does_not_ask_any_more_holds_up_nobody() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 1, "a", "b", "c")
        [place] = _taken(places, "a")
        places.ask("b")
        await asyncio.sleep(PATIENCE_SECONDS * 0.6)
        places.ask("c")
        places.give_back("a", place)
        assert places.ask("c") == 0
        await asyncio.sleep(PATIENCE_SECONDS * 0.6)
        assert places.ask("c") == 1

    run_simulated(main)


def test_hosts_that_do_not_answer_leave_a_place_for_each_of_the_others() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 16, "good")
        for n in range(16):
            places.give_back(f"dead{n}", places.take(f"dead{n}"), reachable=False)
        assert sum(_fill(places, f"dead{n}") for n in range(16)) == 13
        assert sum(_fill(places, f"new{n}") for n in range(16)) == 1
        assert _fill(places, "good") == 1
        assert places.free == 1, "for one that has answered often"

    run_simulated(main)


def test_a_call_that_takes_over_a_place_stays_what_its_host_was() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 16)
        for n in range(20):
            if places.ask(f"dead{n}"):
                places.hold(f"dead{n}", 1)
                places.take(f"dead{n}", in_place=True)
                places.hold(f"dead{n}", -1)
        assert places.taken == 14

    run_simulated(main)


def test_the_place_that_is_given_back_is_that_of_the_call_which_has_ended() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 16)
        hangs, ends = places.take("a"), places.take("a")
        counted = places._hosts.parties.all.calls
        assert [counted[tier] for tier in Tier] == [0, 0, 1, 1]
        places.give_back("a", ends, reachable=True)
        assert counted[Tier.UNTRIED] == 1, "it still hangs"
        places.give_back("a", hangs)
        assert sum(counted) == 0

    run_simulated(main)


def test_who_has_stood_in_line_longest_is_next_whatever_is_known_of_it() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 1, "a", "b")
        order = []
        held, [place] = "a", _taken(places, "a")
        for _ in range(6):
            for host in ("b", "a", "new"):
                places.ask(host)
            places.give_back(held, place)
            held = next(host for host in ("a", "b", "new") if places.ask(host))
            place = places.take(held)
            order.append(held)
        assert order == ["b", "new", "a", "b", "new", "a"]

    run_simulated(main)


@pytest.mark.slow
def test_no_more_hosts_are_remembered_than_a_few_thousand_and_those_that_answer_longest() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 4, "good")
        for n in range(3 * HOSTS_KEPT):
            places.give_back(f"h{n}", places.take(f"h{n}"), reachable=False)
        assert len(places._hosts) <= HOSTS_KEPT + 4
        assert places.is_proven("good")

    run_simulated(main)


def test_nothing_is_taken_from_what_is_closed() -> None:
    async def main(loop: SimulatedLoop) -> None:
        places = _places(loop, 4, "a")
        places.closed = True
        assert (places.ask("a"), places.free, places.first_in_line) == (0, 0, ())

    run_simulated(main)
