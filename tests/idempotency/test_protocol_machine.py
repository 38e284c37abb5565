"""The claim protocol against a model: holders come, freeze, wake, fail and vanish in any order, on a clock that jumps.

The machine plays the parts of the protocol that wait (work that has begun and not ended) as steps of its own: a
holder is a coroutine that is suspended inside its work. The model knows for each key what may be seen.
"""

# ruff: noqa: PT017  (a coroutine ends with an exception, and its result is in it)

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, nullcontext
from types import coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from mainspring.idempotency.core import Processor
from mainspring.idempotency.errors import InProgress, LostClaim, UnknownOutcome
from mainspring.idempotency.record import IdempotencyRecord, NotDone, Resolved
from mainspring.idempotency.stores.memory import InMemoryStore
from mainspring.idempotency.terms import Flight

LEASE_MS = 30_000
TTL_MS = 86_400_000


class SettableClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def align(self, store_ms: int) -> None:
        self.ms = store_ms


@coroutine
def suspended() -> Generator[None, object, object]:
    """The work: ends when the machine says so, with what the machine sends."""
    return (yield)


class SteppedModel:
    """Waits for nobody: work is a suspension, and whoever would have to wait for another gives up at once."""

    entropy = staticmethod(os.urandom)
    is_waiting = True

    def __init__(self, clock: SettableClock) -> None:
        self.monotonic = clock.monotonic

    def turn(self, address: str, seconds: float) -> AbstractAsyncContextManager[Flight]:
        return nullcontext(Flight())

    def beating(
        self, renew: Callable[[], Awaitable[bool]], every_seconds: float
    ) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def keep_trying(self, step: Callable[[], Awaitable[bool]], every_seconds: float) -> None:
        raise AssertionError("Expected a store that answers")

    async def shielded(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await coroutine

    async def call(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await work(*arguments)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("Expected nobody to wait")


class Holder:
    def __init__(self, running: Coroutine[None, object, IdempotencyRecord[str]], lease_until: int) -> None:
        self.running = running
        self.lease_until = lease_until


async def _work(_: object) -> Any:
    outcome = await suspended()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class Protocol(RuleBasedStateMachine):
    holders = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.store = InMemoryStore()
        self.store._clock = self.clock  # type: ignore[assignment]
        self.answers: list[object] = []
        self.plain = self._processor()
        self.repeating = self._processor(safe_to_repeat=True)
        self.resolving = self._processor(resolve=self._resolve)
        # The model: who holds the claim, since when it is unknown, what is recorded until when.
        self.holder: Holder | None = None
        self.unknown = False
        self.done: tuple[str, int] | None = None
        self.results = 0

    def _processor(self, **options: Any) -> Processor[object, str]:
        defaults: dict[str, Any] = {"resolve": None, "safe_to_repeat": False}
        return Processor(
            self.store,
            SteppedModel(self.clock),
            _work,
            scope="machine",
            exclude_fields=(),
            ttl_seconds=TTL_MS / 1000,
            lease_seconds=LEASE_MS / 1000,
            wait_seconds=0,
            keep=None,
            result_type=str,
            **defaults | options,
        )

    async def _resolve(self, payload: object, unresolved: object) -> object:
        return self.answers.pop()

    # --- Callers

    @rule(target=holders, kind=st.sampled_from(["plain", "repeating", "not done"]))
    def call(self, kind: str) -> Any:
        processor = {"plain": self.plain, "repeating": self.repeating, "not done": self.resolving}[kind]
        self.answers = [NotDone()]
        running = processor.process("payload", processor.identities.of("payload", None))
        expected = self._expected()
        try:
            running.send(None)
        except StopIteration as stop:
            assert expected == "done"
            assert self.done is not None
            assert (stop.value.result, stop.value.was_replay) == (self.done[0], True)
            return multiple()
        except InProgress:
            assert expected == "running"
            return multiple()
        except UnknownOutcome:
            assert (expected, kind) == ("unknown", "plain")
            return multiple()  # a holder that was only late may still say how it ended
        assert expected == "free" or (expected == "unknown" and kind != "plain")
        self.holder, self.unknown, self.done = Holder(running, self.clock.ms + LEASE_MS), False, None
        return self.holder

    @rule(is_known=st.booleans())
    def resolve(self, is_known: bool) -> None:
        """A caller whose `resolve` says that the work was done, or that it does not know either."""
        if self._expected() != "unknown":
            return
        self.answers = [Resolved("found") if is_known else None]
        try:
            self.resolving.process("payload", self.resolving.identities.of("payload", None)).send(None)
        except StopIteration as stop:
            assert is_known
            assert stop.value.result == "found"
            self.done = ("found", self.clock.ms + TTL_MS)
            self.holder, self.unknown = None, False
        except UnknownOutcome:
            assert not is_known
            self.holder, self.unknown = None, True

    def _expected(self) -> str:
        if self.done is not None:
            return "done" if self.done[1] > self.clock.ms else "free"
        if self.holder is not None:
            return "running" if self.holder.lease_until > self.clock.ms else "unknown"
        return "unknown" if self.unknown else "free"

    # --- Holders

    @rule(holder=consumes(holders))
    def succeed(self, holder: Holder) -> None:
        self.results += 1
        result = f"result {self.results}"
        try:
            holder.running.send(result)
        except StopIteration as stop:
            assert self.holder is holder, "a holder that had lost its claim recorded an outcome"
            assert (stop.value.result, stop.value.was_replay) == (result, False)
            self.done, self.holder = (result, self.clock.ms + TTL_MS), None
        except LostClaim:
            assert self.holder is not holder

    @rule(holder=consumes(holders))
    def fail(self, holder: Holder) -> None:
        try:
            holder.running.send(ValueError("no"))
        except ValueError:
            if self.holder is holder:
                self.holder = None

    @rule(holder=consumes(holders))
    def do_not_know(self, holder: Holder) -> None:
        try:
            holder.running.send(UnknownOutcome("who knows"))
        except UnknownOutcome:
            if self.holder is holder:
                self.holder, self.unknown = None, True

    # --- Time, and hands

    @rule(ms=st.sampled_from([1, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, TTL_MS, TTL_MS + LEASE_MS]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms

    @rule()
    def forget(self) -> None:
        expected = self._expected()
        key = "sha256-" + next(iter(self.store._records), ":").rpartition(":")[2]
        try:
            self.plain.forget(key).send(None)
        except StopIteration:
            assert expected != "running"
            self.holder, self.unknown, self.done = None, False, None
        except InProgress:
            assert expected == "running"

    @invariant()
    def at_most_one_record(self) -> None:
        assert len(self.store) <= 1

    def teardown(self) -> None:
        self.store = InMemoryStore()


Protocol.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestProtocol = Protocol.TestCase


@pytest.mark.parametrize("pause_ms", [1, TTL_MS])
@pytest.mark.parametrize("first_one", ["succeed", "fail"])
def test_a_frozen_first_holder_never_takes_a_third_ones_claim_for_its_own(pause_ms: int, first_one: str) -> None:
    """The versions of the two may be the same, when everything between them is gone."""
    machine = Protocol()
    first = machine.call(kind="plain")
    machine.wait(ms=LEASE_MS)
    machine.fail(holder=machine.call(kind="repeating"))
    machine.wait(ms=pause_ms)
    third = machine.call(kind="plain")
    getattr(machine, first_one)(holder=first)
    machine.succeed(holder=third)
    assert machine.done is not None
