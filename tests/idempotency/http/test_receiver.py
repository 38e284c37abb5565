"""The receiver kit without a framework: signatures, repeats, and what senders are told."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.client import callback_answer
from mainspring.delivery.signatures import new_secret
from mainspring.errors import ConfigError, InvalidInput, StoreUnavailable
from mainspring.idempotency import InMemoryStore, NotDone, Resolved, SQLiteStore, UnknownOutcome, Unresolved
from mainspring.idempotency.http.answers import Answer
from mainspring.idempotency.http.receiver import Delivery, Received, Receiver
from tests.idempotency.http.deliveries import BODY, SECRET, signed
from tests.idempotency.stalling_store import Stalling


class Work:
    """Notes deliveries and answers as told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.result: object = None
        self.failure: Exception | None = None

    def __call__(self, delivery: Delivery) -> object:
        self.done.append(delivery.id)
        if self.failure is not None:
            raise self.failure
        return self.result


def receiver(**options: Any) -> Receiver:
    return Receiver(**{"secrets": [SECRET], "store": InMemoryStore(), "scope": "test", "wait_seconds": 0, **options})


def code(received: Received) -> tuple[int, str]:
    return received.answer.status, msgspec.json.decode(received.answer.body)["code"]


def test_a_repeat_with_another_attempt_in_its_body_is_answered_as_before() -> None:
    work = Work()
    work.result = {"seen": 1}
    receive = receiver().blocking(work)
    later = BODY.replace(b'"attempt":1', b'"attempt":2')
    first, again = receive(signed(), BODY), receive(signed(body=later), later)
    assert work.done == ["msg_1"]
    assert (first.was_replay, again.was_replay) == (False, True)
    assert first.answer.body == again.answer.body == b'{"seen":1}'
    assert again.answer.headers == [*first.answer.headers, (b"idempotent-replayed", b"true")]
    assert not receive(signed("msg_2"), BODY).was_replay


def test_a_delivery_whose_claim_was_applied_late_runs_when_it_is_repeated() -> None:
    store, work = Stalling(), Work()
    receive = receiver(store=store).blocking(work)
    store.is_stalled = True
    assert code(receive(signed(), BODY)) == (503, "store_unavailable")
    store.now += 3_600_000  # every lease has passed
    store.go_on()
    assert receive(signed(), BODY).answer.status == 200
    assert work.done == ["msg_1"]


def test_the_work_gets_the_body_as_it_says_and_as_it_is() -> None:
    got: list[Delivery] = []
    receiver().blocking(got.append)({**signed(), "X-Own": "1"}, BODY)
    assert got[0].data["payload"] == {"order": 42}
    assert (got[0].body, got[0].headers["x-own"]) == (BODY, "1")


OTHER = new_secret(os.urandom(32))
FORGERIES = {
    "secret": signed(secret=OTHER),
    "body": signed(body=b"{}"),
    "id": {**signed(), "webhook-id": "msg_2"},
    "old": signed(age=301),
    "none": {},
    "garbage": {**signed(), "webhook-signature": "v1,\xff", "webhook-timestamp": "x"},
}


@pytest.mark.parametrize("headers", FORGERIES.values(), ids=FORGERIES)
def test_a_wrong_signature_is_refused_and_nothing_is_recorded(headers: dict[str, str]) -> None:
    work = Work()
    store = InMemoryStore()
    assert code(receiver(store=store).blocking(work)(headers, BODY)) == (401, "unauthenticated")
    assert (work.done, len(store)) == ([], 0)


def test_either_of_two_secrets_is_accepted() -> None:
    receive = receiver(secrets=[OTHER, SECRET]).blocking(Work())
    assert receive(signed(), BODY).answer.status == 200
    assert receive(signed("msg_2", secret=OTHER), BODY).answer.status == 200


@pytest.mark.parametrize(
    ("body", "expected"), [(b"no JSON", (400, "invalid_input")), (b'"' + b"x" * 200 + b'"', (413, "too_large"))]
)
def test_a_body_that_cannot_be_read_is_refused(body: bytes, expected: tuple[int, str]) -> None:
    assert code(receiver(max_body_bytes=100).blocking(Work())(signed(body=body), body)) == expected


@pytest.mark.parametrize("name", ["x" * 256, "sha256-1"], ids=["too long", "like a derived key"])
def test_a_delivery_id_that_cannot_be_a_key_is_refused(name: str) -> None:
    assert code(receiver().blocking(Work())(signed(name), BODY)) == (400, "invalid_input")


@pytest.mark.parametrize(
    ("result", "runs"),
    [
        (None, 1),
        ({"ok": True}, 1),
        ([], 1),
        (callback_answer(payload=1), 1),
        (Answer(204, [], b""), 1),
        ({"ok": False}, 2),
        (callback_answer(ok=False), 2),
        (Answer(503, [], b""), 2),
        (Answer(404, [], b""), 2),
    ],
)
def test_only_what_the_sender_takes_for_success_is_kept(result: object, runs: int) -> None:
    work = Work()
    work.result = result
    receive = receiver().blocking(work)
    first, again = receive(signed(), BODY).answer, receive(signed(), BODY).answer
    assert (len(work.done), first.status, first.body) == (runs, again.status, again.body)


def test_work_that_fails_raises_and_runs_again() -> None:
    work = Work()
    receive = receiver().blocking(work)
    work.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        receive(signed(), BODY)
    work.failure = None
    assert receive(signed(), BODY).answer.body == b'{"ok":true}'


def test_a_repeat_during_the_work_is_told_to_come_again_in_a_way_that_senders_obey(tmp_path: Path) -> None:
    entered, gate = threading.Event(), threading.Event()

    def slow(delivery: Delivery) -> None:
        entered.set()
        assert gate.wait(10)

    store = SQLiteStore(str(tmp_path / "deliveries.db"))
    receive = receiver(store=store).blocking(slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(receive, signed(), BODY)
        assert entered.wait(10)
        refused = receive(signed(), BODY)
        gate.set()
        assert first.result(10).answer.status == 200
    assert code(refused) == (503, "in_progress")
    assert dict(refused.answer.headers)[b"retry-after"] == b"1"
    assert receive(signed(), BODY).was_replay
    store.close()


def test_work_that_does_not_know_how_it_ended_is_not_run_again_unless_somebody_finds_out() -> None:
    work = Work()
    work.failure = UnknownOutcome("the call timed out")
    store = InMemoryStore()
    receive = receiver(store=store).blocking(work)
    for _ in range(2):
        assert code(receive(signed(), BODY)) == (503, "unknown_outcome")
    assert len(work.done) == 1
    asked: list[tuple[str, str]] = []

    def find_out(delivery: Delivery, unresolved: Unresolved) -> Resolved[object] | NotDone:
        asked.append((delivery.id, unresolved.reason))
        return Resolved({"found": True})

    told = receiver(store=store, resolve=find_out).blocking(work)(signed(), BODY)
    assert (told.answer.body, asked) == (b'{"found":true}', [("msg_1", "the call timed out")])
    work.failure = None
    work.done.clear()
    receiver(store=store, resolve=lambda *_: NotDone()).blocking(work)(signed(), BODY)
    assert work.done == []


def test_a_store_that_is_away_is_an_answer_that_is_tried_again() -> None:
    store = InMemoryStore()

    async def down(*_: object, **__: object) -> None:
        raise StoreUnavailable

    store.claim = down  # type: ignore[method-assign]
    assert code(receiver(store=store).blocking(Work())(signed(), BODY)) == (503, "store_unavailable")


def test_work_without_a_name_of_its_own_must_be_given_one() -> None:
    with pytest.raises(ConfigError, match="scope="):
        receiver(scope=None).blocking(lambda delivery: None)


async def awaited(delivery: Delivery) -> None:
    raise AssertionError


def test_work_that_is_awaited_is_refused_where_nobody_awaits_it() -> None:
    with pytest.raises(ConfigError, match="got a coroutine function"):
        receiver().blocking(awaited)


def lost(delivery: Delivery) -> object:
    raise UnknownOutcome("the call timed out")


def test_who_decides_by_hand_names_the_function_or_its_view_where_the_receiver_has_no_scope() -> None:
    kit = receiver(scope=None)
    receive = kit.blocking(lost)
    names: list[Callable[..., object]] = [lost, kit.flask(lost), kit.django(lost)]
    for number, named in enumerate(names):
        name = f"msg_{number}"
        assert code(receive(signed(name), BODY)) == (503, "unknown_outcome")
        kit.settle(name, work=named)
        assert receive(signed(name), BODY).answer.body == b'{"ok":true}'
    with pytest.raises(ConfigError, match="work="):
        kit.settle("msg_1")
    with pytest.raises(ConfigError, match="scope="):
        kit.forget("msg_1", work=lambda delivery: None)


def test_only_a_delivery_whose_outcome_is_unknown_can_be_settled() -> None:
    kit = receiver()
    kit.blocking(Work())(signed(), BODY)
    for name in ("msg_1", "msg_2"):
        with pytest.raises(InvalidInput, match="only one whose outcome is unknown can be settled"):
            kit.settle(name)


async def test_an_event_loop_settles_what_is_unknown_to_it() -> None:
    async def lost(delivery: Delivery) -> None:
        raise UnknownOutcome

    kit = receiver()
    receive = kit.waiting(lost)
    assert code(await receive(signed(), BODY)) == (503, "unknown_outcome")
    await kit.asettle("msg_1", b"[]")
    assert (await receive(signed(), BODY)).answer.body == b"[]"


async def test_an_event_loop_does_the_work_of_many_equal_deliveries_once() -> None:
    done: list[str] = []

    async def work(delivery: Delivery) -> None:
        done.append(delivery.id)
        await asyncio.sleep(0.01)

    receive = receiver(wait_seconds=5).waiting(work)
    answers = await asyncio.gather(*(receive(signed(), BODY) for _ in range(50)))
    assert done == ["msg_1"]
    assert sorted(answer.was_replay for answer in answers) == [False] + [True] * 49


async def test_a_resolver_may_be_waited_for() -> None:
    store = InMemoryStore()

    async def lost(delivery: Delivery) -> None:
        raise UnknownOutcome

    async def find_out(delivery: Delivery, unresolved: Unresolved) -> Resolved[object]:
        return Resolved(None)

    assert code(await receiver(store=store).waiting(lost)(signed(), BODY)) == (503, "unknown_outcome")
    assert (await receiver(store=store, resolve=find_out).waiting(lost)(signed(), BODY)).was_replay
