"""Histories that several tests of the oracle judge."""

from __future__ import annotations

from typing import Any

from tests.testing.oracle.model import Attempt, Model


def at_most_once_is_unknown_after_a_kill(m: Model) -> None:
    m.do("create", "t", due=0, mark="one", delivery="at-most-once")
    m.begin("t")
    m.kill("i1")
    m.take_over("i2")


def in_flight(model: Model, **terms: Any) -> Attempt:
    """An attempt whose call has arrived."""
    model.do("create", "t", due=0, mark="one", **terms)
    attempt = model.begin("t")
    model.send(attempt)
    model.arrive(attempt)
    return attempt


def the_end_of_the_old_removes_the_new(m: Model) -> None:
    attempt = in_flight(m)
    m.do("delete", "t")
    m.do("create", "t", due=5000, mark="two")
    m.reply(attempt)
    twin = m.rows.pop("t")
    m.write(
        m._commit(
            "finish",
            twin,
            None,
            attempt.timer.delivery_id,
            node="i1",
            fence=1,
            attempts=1,
            next="done",
            outcome="succeeded",
            recorded=True,
        )
    )
    m.leave()
