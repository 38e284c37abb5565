"""Keys whose outcome is unknown can be found, looked at, settled and forgotten, on every store."""

from __future__ import annotations

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import AsyncIdempotentProcessor, IdempotentProcessor, UnknownOutcome
from mainspring.idempotency.stores import IdempotencyStore
from tests.idempotency.stalling_store import Stalling


def _lost(payload: object) -> str:
    raise UnknownOutcome(f"no answer for {payload}")


def test_unknown_keys_are_listed_until_somebody_decides(store: IdempotencyStore) -> None:
    processor = IdempotentProcessor(store, _lost, scope="hand")
    other = IdempotentProcessor(store, _lost, scope="hand:other")
    for number in range(3):
        with pytest.raises(UnknownOutcome):
            processor.process(number, f"k{number}")
    with pytest.raises(UnknownOutcome):
        other.process("x")
    found = processor.list_unknown()
    assert sorted((one.key, one.reason) for one in found) == [(f"k{n}", f"no answer for {n}") for n in range(3)]
    assert {(one.scope, one.state, one.attempt, one.result) for one in found} == {("hand", "unknown", 1, "json")}
    assert len(processor.list_unknown(limit=2)) == 2
    assert [one.key for one in other.list_unknown()] == [other.list_unknown()[0].key]
    processor.settle("k0", "done")
    assert processor.forget("k1")
    assert [one.key for one in processor.list_unknown()] == ["k2"]
    assert [one.key for one in processor.list_unknown()] == ["k2"]  # what is no longer unknown is struck
    settled = processor.get("k0")
    assert settled is not None
    assert (settled.state, settled.result, settled.result_bytes) == ("done", "json", len('"done"'))
    assert settled.expires_at is not None
    assert processor.get("never") is None


async def test_unknown_keys_are_listed_on_an_event_loop_too(waiting_store: IdempotencyStore) -> None:
    async def lost(payload: object) -> bytes:
        raise UnknownOutcome(f"no answer for {payload}")

    processor = AsyncIdempotentProcessor(waiting_store, lost, scope="hand", result_type=bytes)
    with pytest.raises(UnknownOutcome):
        await processor.process(1, "k")
    [found] = await processor.list_unknown()
    assert (found.key, found.result) == ("k", "bytes")
    assert await processor.get("k") is not None
    assert await processor.forget("k")
    assert await processor.list_unknown() == []


def test_the_key_of_a_dead_process_is_listed_as_soon_as_somebody_has_asked_for_it() -> None:
    store = Stalling()

    def dies(_: object) -> str:
        store.is_stalled = True
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        IdempotentProcessor(store, dies, scope="dead").process(1, "k")
    store.late.clear()  # nothing of what a dead process meant to write
    store.go_on()
    store.now += 31_000
    later = IdempotentProcessor(store, lambda _: "done", scope="dead")
    assert later.list_unknown() == []
    with pytest.raises(UnknownOutcome):
        later.process(1, "k")
    [found] = later.list_unknown()
    assert (found.key, found.reason) == ("k", "the work was started, and the process running it stopped responding")
    assert later.forget("k")
    assert later.process(1, "k").result == "done"
    assert later.list_unknown() == []


def test_a_note_that_cannot_be_written_changes_nothing() -> None:
    class Notes(Stalling):
        async def note(self, address: str, value: bytes, *, now: int) -> None:
            raise StoreUnavailable("full")

    processor = IdempotentProcessor(Notes(), _lost, scope="hand")
    for _ in range(2):
        with pytest.raises(UnknownOutcome):
            processor.process(1, "k")
    assert processor.list_unknown() == []
    assert processor.forget("k")
