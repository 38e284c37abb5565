"""What work may ask about its claim, and what becomes of work that goes on without one."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.errors import InvalidInput, StoreUnavailable
from mainspring.idempotency import (
    AsyncIdempotentProcessor,
    IdempotentProcessor,
    InMemoryStore,
    LostClaim,
    UnknownOutcome,
    current_claim,
)
from tests.idempotency.stalling_store import Stalling


def test_work_knows_its_key_its_token_and_how_many_held_the_claim_before_it() -> None:
    store = Stalling()
    seen: list[tuple[str, str, int, bool]] = []

    def work(_: object) -> str:
        claim = current_claim()
        seen.append((claim.key, claim.token, claim.attempt, claim.still_held()))
        if len(seen) == 1:
            raise UnknownOutcome("the bank did not answer")
        return "done"

    processor = IdempotentProcessor(store, work, scope="claims", safe_to_repeat=True)
    with pytest.raises(UnknownOutcome):
        processor.process(1, "k")
    assert processor.process(1, "k").result == "done"
    assert [(key, attempt, held) for key, _, attempt, held in seen] == [("k", 1, True), ("k", 2, True)]
    assert seen[0][1] != seen[1][1]
    with pytest.raises(InvalidInput, match="by work that runs under a claim"):
        current_claim()


def test_a_frozen_holder_finds_out_that_its_claim_has_passed_on() -> None:
    """Its result is refused in any case; what it does before that, only it can leave undone."""
    store = Stalling()
    charged: list[str] = []

    def slow(_: object) -> str:
        store.now += 31_000  # frozen for longer than its lease
        assert not current_claim().still_held()
        assert IdempotentProcessor(store, quick, scope="s", safe_to_repeat=True).process(1).result == "second"
        if current_claim().still_held():
            charged.append("first")
        return "first"

    def quick(_: object) -> str:
        assert (current_claim().attempt, current_claim().still_held()) == (2, True)
        charged.append("second")
        return "second"

    with pytest.raises(LostClaim):
        IdempotentProcessor(store, slow, scope="s", safe_to_repeat=True).process(1)
    assert charged == ["second"]


async def test_work_on_an_event_loop_awaits_the_answer() -> None:
    async def work(_: object) -> bool:
        with pytest.raises(InvalidInput, match="astill_held"):
            current_claim().still_held()
        return await current_claim().astill_held()

    assert (await AsyncIdempotentProcessor(InMemoryStore(), work, scope="loop").process(1)).result


def test_without_an_answer_from_the_store_nobody_may_believe_that_the_claim_is_held() -> None:
    store = Stalling()

    def work(_: object) -> bool:
        store.is_stalled = True
        held = current_claim().still_held()
        store.is_stalled = False
        return held

    assert IdempotentProcessor(store, work, scope="stalled").process(1).result is False


def test_the_record_of_finished_work_is_tried_until_the_lease_ends() -> None:
    class Away(InMemoryStore):
        refusals = 8

        async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
            if b'"state":"done"' in value and self.refusals:
                self.refusals -= 1
                raise StoreUnavailable("away")
            return await super().replace(address, value, expect=expect, now=now, expires_at=expires_at)

    store = Away()
    processor = IdempotentProcessor(store, lambda payload: payload, scope="away")
    processor._model.sleep = _at_once  # type: ignore[method-assign]
    assert processor.process(1).result == 1
    assert (store.refusals, processor.process(1).was_replay) == (0, True)


async def _at_once(seconds: float) -> None:
    assert 0 < seconds <= 1


def test_a_key_alone_decides_where_that_is_said() -> None:
    store = InMemoryStore()
    processor = IdempotentProcessor[Any, int](store, len, scope="keys", match="key")
    assert processor.process([object()], "k").result == 1  # a payload that has no form
    assert processor.process([object(), object()], "k").result == 1
    assert processor.process("abc", "other").result == 3
    with pytest.raises(InvalidInput, match="Expected a key, because with match"):
        processor.process("abc")
    with pytest.raises(InvalidInput, match="does not start with sha256-"):
        processor.process("abc", "sha256-" + "0" * 64)
    bound = IdempotentProcessor(store, lambda payload: payload, scope="keys")
    assert bound.process("whatever", "k").was_replay  # it was bound to no payload
