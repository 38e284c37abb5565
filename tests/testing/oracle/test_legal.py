"""Legal histories, however tricky, raise nothing: with the commits known, and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from mainspring.testing.oracle.journal import AnyEvent, Fault
from mainspring.testing.oracle.judge import judge
from tests.testing.oracle.histories import at_most_once_is_unknown_after_a_kill
from tests.testing.oracle.model import LEASE_MS, WITH_COMMITS, WITHOUT, Asking, Attempt, Model, started, told

History = Callable[[Model], None]


def create_update_deliver(m: Model) -> None:
    m.do("create", "t", due=100, mark="one")
    m.do("update", "t", mark="two")
    m.advance(100)
    m.deliver("t")


def a_create_of_unknown_outcome_that_lands_after_its_id_was_used_again(m: Model) -> None:
    late = m.ask("create", "t", "c1", due=50, mark="late")
    m.lose(late)
    m.do("create", "t", "c2", due=500, mark="two")
    m.advance(20)
    m.land(late)
    m.advance(50)
    m.deliver("t")


def a_create_of_unknown_outcome_that_never_lands(m: Model) -> None:
    m.lose(m.ask("create", "t", due=0, mark="one"))


def a_delete_whose_answer_was_lost_ends_the_delivery(m: Model) -> None:
    m.do("create", "t", due=1000, mark="one")
    asking = m.ask("delete", "t")
    m.land(asking)
    m.lose(asking)


def a_delete_of_unknown_outcome_lands_on_what_was_created_later(m: Model) -> None:
    m.do("create", "t", due=1000, mark="one")
    late = m.ask("delete", "t")
    m.lose(late)
    m.do("create", "t", due=1000, mark="two")
    m.land(late)


def a_re_create_while_the_old_call_is_in_flight(m: Model) -> None:
    m.do("create", "t", due=0, mark="old")
    old = m.begin("t")
    m.send(old)
    m.do("delete", "t")
    m.do("create", "t", due=300, mark="new")
    m.arrive(old)
    m.reply(old)
    m.finish(old)
    m.advance(300)
    m.deliver("t")


def a_replaced_call_that_arrives_just_after_the_answer(m: Model) -> None:
    m.do("create", "t", due=0, mark="old")
    old = m.begin("t")
    m.do("create", "t", due=5000, mark="new")
    m.advance(400)
    m.send(old)
    m.arrive(old)
    m.reply(old, 503)
    m.finish(old)
    m.advance(5000)
    m.deliver("t")


def at_most_once_is_resumed_after_it_was_unknown(m: Model) -> None:
    m.do("create", "t", due=0, mark="one", delivery="at-most-once")
    attempt = m.begin("t")
    m.send(attempt)
    m.arrive(attempt)
    m.kill("i1")
    m.take_over("i2")
    m.do("resume", "t")
    m.deliver("t")


def at_least_once_is_accepted_twice_because_its_owner_died(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.send(attempt)
    m.arrive(attempt)
    m.reply(attempt)
    m.kill("i1")
    m.take_over("i2")
    m.deliver("t")


def a_timer_parked_in_flight_stays_parked_when_its_call_fails(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.send(attempt)
    m.do("park", "t")
    m.do("park", "t")
    m.arrive(attempt)
    m.reply(attempt, 503)
    m.finish(attempt)


def a_timer_parked_and_resumed_in_flight_is_removed_when_its_call_succeeds(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.send(attempt)
    m.do("park", "t")
    m.do("resume", "t")
    m.arrive(attempt)
    m.reply(attempt)
    m.finish(attempt)


def a_parked_timer_is_resumed_and_attempts_start_again(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    for _ in range(4):
        m.deliver("t", 503)
        m.advance(1000)
    m.do("resume", "t")
    m.deliver("t", 503)
    m.advance(300)
    m.deliver("t")


def a_receiver_asks_for_another_time_again_and_again(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t", next_in=200)
    m.advance(300)
    m.deliver("t", next_in=3_600_000)


def run_now_ends_the_delivery_and_starts_another(m: Model) -> None:
    m.do("create", "t", due=3_600_000, mark="one")
    m.do("run-now", "t")
    m.deliver("t")


def run_now_of_a_running_timer_is_refused(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.do("run-now", "t")
    m.send(attempt)
    m.arrive(attempt)
    m.reply(attempt)
    m.finish(attempt)


def everything_is_deleted_and_parked_in_bulk(m: Model) -> None:
    for id in "abc":
        m.do("create", id, due=1000, mark=id)
    m.do("bulk-park", "")
    m.do("bulk-resume", "")
    m.do("bulk-delete", "")
    m.do("create", "a", due=0, mark="again")
    m.deliver("a")


def two_clients_create_the_same_id_at_once(m: Model) -> None:
    one, two = m.ask("create", "t", "c1", due=50, mark="one"), m.ask("create", "t", "c2", due=80, mark="two")
    m.land(two)
    m.land(one)
    m.answer(two)
    m.answer(one)
    m.advance(100)
    m.deliver("t")


def a_deleted_timer_whose_owner_died_leaves_no_entry(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.send(attempt)
    m.arrive(attempt)
    m.do("delete", "t")
    m.kill("i1")
    m.take_over("i2")


def a_paused_owner_is_replaced_and_its_late_outcome_is_refused(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.send(attempt)
    m.arrive(attempt)
    m.nodes["i1"] = False
    m.write(Fault(at=m.now, kind="pause", node="i1", until=m.now + 2 * LEASE_MS * 1000))
    m.reply(attempt)
    m.take_over("i2")
    m.advance(LEASE_MS)
    m.nodes["i1"] = True
    m.finish(attempt)
    m.deliver("t")


def the_clock_of_the_store_steps_during_a_wait(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t", 503)
    m.write(Fault(at=m.now, kind="store-clock"))
    m.advance(50)
    m.rows["t"] = replace(m.rows["t"], due_ms=m.wall_ms)
    m.deliver("t")


HISTORIES: list[History] = [
    create_update_deliver,
    a_create_of_unknown_outcome_that_lands_after_its_id_was_used_again,
    a_create_of_unknown_outcome_that_never_lands,
    a_delete_whose_answer_was_lost_ends_the_delivery,
    a_delete_of_unknown_outcome_lands_on_what_was_created_later,
    a_re_create_while_the_old_call_is_in_flight,
    a_replaced_call_that_arrives_just_after_the_answer,
    at_most_once_is_unknown_after_a_kill,
    at_most_once_is_resumed_after_it_was_unknown,
    at_least_once_is_accepted_twice_because_its_owner_died,
    a_timer_parked_in_flight_stays_parked_when_its_call_fails,
    a_timer_parked_and_resumed_in_flight_is_removed_when_its_call_succeeds,
    a_parked_timer_is_resumed_and_attempts_start_again,
    a_receiver_asks_for_another_time_again_and_again,
    run_now_ends_the_delivery_and_starts_another,
    run_now_of_a_running_timer_is_refused,
    everything_is_deleted_and_parked_in_bulk,
    two_clients_create_the_same_id_at_once,
    a_deleted_timer_whose_owner_died_leaves_no_entry,
    a_paused_owner_is_replaced_and_its_late_outcome_is_refused,
    the_clock_of_the_store_steps_during_a_wait,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_a_legal_history_raises_nothing(history: History) -> None:
    model = started()
    history(model)
    model.come_to_rest()
    model.leave()
    assert judge(model.journal, WITH_COMMITS) == []
    assert judge(told(model.journal), WITHOUT) == []


IDS = st.sampled_from(["a", "b"])
CLIENTS = st.sampled_from(["c1", "c2"])
DUES = st.sampled_from([-1000, 0, 0, 30, 500])
VERBS = [
    "create",
    "create",
    "create",
    "update",
    "reschedule",
    "delete",
    "run-now",
    "park",
    "resume",
    "bulk-delete",
    "bulk-park",
    "bulk-resume",
]


class RandomHistory(RuleBasedStateMachine):
    """Any interleaving of users, the engine and deaths of instances that the model allows."""

    @initialize()
    def begin(self) -> None:
        self.model = started()
        self.asking: list[Asking] = []
        self.unknown: list[Asking] = []
        self.spare = 3

    @rule(
        verb=st.sampled_from(VERBS),
        id=IDS,
        client=CLIENTS,
        due=DUES,
        delivery=st.sampled_from(["at-least-once", "at-most-once"]),
    )
    def ask(self, verb: str, id: str, client: str, due: int, delivery: str) -> None:
        mark = f"m{self.model.now}"
        if verb == "create":
            asking = self.model.ask(verb, id, client, due=due, mark=mark, delivery=delivery)
        elif verb == "reschedule":
            asking = self.model.ask("update", id, client, due=due, mark=mark)
        elif verb == "update":
            asking = self.model.ask(verb, id, client, mark=mark)
        else:
            asking = self.model.ask(verb, id, client)
        self.asking.append(asking)

    @rule(choices=st.lists(st.integers(0, 10_000), min_size=3, max_size=12))
    def go_on(self, choices: list[int]) -> None:
        """Whatever is under way goes on, one step here and one there."""
        for choice in choices:
            steps = self._steps()
            if steps:
                steps[choice % len(steps)](choice // len(steps))
            self.model.advance(1 + choice % 7)

    def _steps(self) -> list[Callable[[int], None]]:
        model = self.model
        steps: list[Callable[[int], None]] = []
        steps += (partial(self._land, asking) for asking in self.asking if not asking.landed)
        steps += (partial(self._answer, asking) for asking in self.asking)
        steps += (partial(self._land_late, asking) for asking in self.unknown)
        steps += (partial(self._step, attempt) for attempt in model.attempts if not attempt.over)
        # As in the engine: what is in its window is not begun beside itself.
        busy = {a.timer.id for a in model.attempts if not a.over and a.fence == model.version}
        steps += (partial(self._start, timer.id) for timer in model.due() if timer.id not in busy)
        return steps

    def _land(self, asking: Asking, _: int) -> None:
        self.model.land(asking)

    def _answer(self, asking: Asking, choice: int) -> None:
        if choice % 4 == 0:
            self.asking.remove(asking)
            self.model.lose(asking)
            if not asking.landed:
                self.unknown.append(asking)
        elif asking.landed:
            self.asking.remove(asking)
            self.model.answer(asking)

    def _land_late(self, asking: Asking, choice: int) -> None:
        if choice % 2 == 0:
            self.unknown.remove(asking)
            self.model.land(asking)

    def _start(self, id: str, _: int) -> None:
        self.model.begin(id)

    def _step(self, attempt: Attempt, choice: int) -> None:
        """The next one: sent, arrived, answered, recorded."""
        if not attempt.sent:
            self.model.send(attempt)
        elif not attempt.arrived:
            self.model.arrive(attempt)
        elif attempt.reply is None:
            status = 503 if choice % 3 == 0 else 200
            self.model.reply(attempt, status, next_in=100 if choice % 3 == 1 else None)
        else:
            self.model.finish(attempt)

    @rule(ms=st.sampled_from([1, 50, 300]))
    def wait(self, ms: int) -> None:
        under_way = any(not attempt.over for attempt in self.model.attempts)
        self.model.advance(min(ms, 10) if under_way else ms)

    @precondition(lambda self: self.spare)
    @rule()
    def die(self) -> None:
        """The owner is killed and another one takes over. Calls that are on the wire arrive before that."""
        self.spare -= 1
        for attempt in self.model.attempts:
            if attempt.sent and not attempt.arrived and not attempt.over:
                self.model.arrive(attempt)
        heir = f"h{self.spare}"
        self.model.join(heir)
        self.model.kill(self.model.owner)
        self.model.take_over(heir)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for asking in self.asking:
            self.model.lose(asking)
        self.model.come_to_rest()
        self.model.leave(healed_at=self.model.now - 60_000_000)
        journal = self.model.journal
        known = msgspec.structs.replace(WITH_COMMITS, wire_ms=3000)
        assert judge(journal, known) == []
        assert judge(told(journal), msgspec.structs.replace(known, commits=False)) == []


@pytest.mark.slow
def test_random_legal_histories_raise_nothing() -> None:
    run_state_machine_as_test(
        RandomHistory,
        settings=settings(
            max_examples=150,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_call_that_is_made_while_the_end_is_looked_at_may_be_recorded_after_that_look() -> None:
    def journal(*, during: bool) -> list[AnyEvent]:
        model = started()
        model.do("create", "a", due=100)
        model.advance(100)
        seen = model.now
        model.deliver("a")
        model.advance(60_000)
        model.leave(healed_at=0, history=(), **({"at": seen} if during else {}))
        return told(model.journal)

    assert any(finding.rule == "H" for finding in judge(journal(during=False), WITHOUT))
    assert not any(finding.rule == "H" for finding in judge(journal(during=True), WITHOUT))
