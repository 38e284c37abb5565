"""What programs say: refused in the words of the program, and pointed to like in the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import pytest

from mainspring import Mainspring
from mainspring.client import Client
from mainspring.client.callback import callback_answer
from mainspring.errors import ConfigError, FieldError, InvalidInput
from mainspring.model import RetryPolicy
from mainspring.origins import Origin
from mainspring.testing.fake_client import FakeMainspring
from mainspring.timers.arguments import create_request as timer_request
from mainspring.transactional import TimerWriter

URL = "https://example.com/"
HOOK: dict[str, Any] = {"callback_url": URL}
DUE: dict[str, Any] = {"delay_seconds": 1, "callback_url": URL}
NEVER = RetryPolicy(max_attempts=0)
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
NUMBER, TEXT = "Expected a number", "Expected text"
SPAN = "Expected a number of seconds, got a timedelta"

Ask = Callable[[Any], Awaitable[object]]


class Basket(Origin):
    pass


LIBRARY: list[tuple[str, Ask]] = [
    (
        f"delay_seconds: {NUMBER}, got text",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, delay_seconds="1"),
    ),
    (
        f"delay_seconds: {NUMBER}, got",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, delay_seconds=True),
    ),
    (
        f"delay_seconds: {NUMBER} of at least 0",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, delay_seconds=-1),
    ),
    (
        f"delay_seconds: {NUMBER}",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, delay_seconds=float("nan")),
    ),
    (
        "execute_at: Expected a datetime, got '2026",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, execute_at="2026-12-01T00:00Z"),
    ),
    (
        "execute_at: Expected a datetime, got 1794",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, execute_at=1794840594),
    ),
    (
        "execute_at: Expected a datetime with a time",
        lambda ms: ms.timers.create("t", namespace="app", callback_url=URL, execute_at=NAIVE),
    ),
    (
        f"callback_timeout_seconds: {NUMBER}, got text",
        lambda ms: ms.timers.create("t", namespace="app", **DUE, callback_timeout_seconds="x"),
    ),
    ("labels: Expected an object, got text", lambda ms: ms.timers.create("t", namespace="app", **DUE, labels="x")),
    (f"labels.a: {TEXT}", lambda ms: ms.timers.create("t", namespace="app", **DUE, labels={"a": 1})),
    ("headers: Expected an object, got text", lambda ms: ms.timers.create("t", namespace="app", **DUE, headers="x")),
    ("delivery: Expected at-least-once or", lambda ms: ms.timers.create("t", namespace="app", **DUE, delivery="once")),
    ("retry_policy.max_attempts: ", lambda ms: ms.timers.create("t", namespace="app", **DUE, retry_policy=NEVER)),
    (f"timer_id: {TEXT}", lambda ms: ms.timers.create(5, namespace="app", **DUE)),
    (f"timer_id: {TEXT}", lambda ms: ms.timers.create(UUID(int=1), namespace="app", **DUE)),
    (f"timer_id: {TEXT}", lambda ms: ms.timers.create(b"t", namespace="app", **DUE)),
    (f"handler: {TEXT}", lambda ms: ms.timers.create("t", namespace="app", handler=5, delay_seconds=1)),
    (f"callback_url: {TEXT}", lambda ms: ms.timers.create("t", namespace="app", callback_url=5, delay_seconds=1)),
    (
        "a payload that can be written as JSON, got",
        lambda ms: ms.timers.create("t", namespace="app", **DUE, payload=object()),
    ),
    (f"delay_seconds: {SPAN}", lambda ms: ms.timers.create("t", callback_url=URL, delay_seconds=timedelta(1))),
    ("timers: Expected CreateTimer messages", lambda ms: ms.timers.create_batch(["x"])),
    ("states: Expected a list such as ['parked']", lambda ms: ms.timers.list(states="parked")),
    ("due_to: Expected a datetime, got '2026", lambda ms: ms.timers.list(due_to="2026-01-01")),
    (f"delay_seconds: {NUMBER}", lambda ms: ms.timers.update("t", namespace="app", delay_seconds="5")),
    ("Expected at least one field to change, got none", lambda ms: ms.timers.update("t", namespace="app")),
    ("Expected at least one field to change, got none", lambda ms: ms.jobs.update("j")),
    ("execute_at: Expected a datetime", lambda ms: ms.timers.update("t", namespace="app", execute_at="soon")),
    (f"timer_id: {TEXT}", lambda ms: ms.timers.get(5, namespace="app")),
    (f"namespace: {TEXT}", lambda ms: ms.timers.get("t", namespace=None)),
    (f"timer_id: {TEXT}", lambda ms: ms.timers.delete(7, namespace="app")),
    ("limit: Expected a whole number", lambda ms: ms.timers.history("t", namespace="app", limit="x")),
    ("labels: Expected an object", lambda ms: anext(ms.timers.iterate(namespace="app", labels="x"))),
    ("name: Expected text of at least 1 character", lambda ms: ms.namespaces.create("")),
    ("name: Expected only letters", lambda ms: ms.namespaces.create("a b")),
    ("name: Expected only letters", lambda ms: ms.namespaces.create("\u00e4")),
    ("name: Expected text of at most 255", lambda ms: ms.namespaces.create("x" * 300)),
    (f"name: {TEXT}", lambda ms: ms.namespaces.create(5)),
    (f"name: {TEXT}", lambda ms: ms.jobs.get(5)),
    (f"name: {TEXT}", lambda ms: ms.jobs.pause(None)),
    (f"timeout_seconds: {NUMBER}", lambda ms: ms.jobs.create("j", "@daily", url=URL, timeout_seconds="x")),
    ("start_at: Expected a datetime", lambda ms: ms.jobs.create("j", "@daily", url=URL, start_at="2026-01-01")),
    ("since: Expected a datetime", lambda ms: ms.jobs.backfill("j", since="2026-01-01", until="2026-02-01")),
    ("states.0: Expected one of planned", lambda ms: anext(ms.jobs.iterate_runs("j", states=["x"]))),
    ("from_: Expected a datetime", lambda ms: ms.jobs.preview(schedule="@daily", from_="x")),
    (f"timeout_seconds: {NUMBER}", lambda ms: ms.fetch(URL, timeout_seconds="5")),
    ("url: Expected text", lambda ms: ms.fetch(5)),
    ("method: Expected one of GET", lambda ms: ms.fetch(URL, method="get")),
    ("req_id: Expected only letters", lambda ms: ms.fetch(URL, req_id="a b")),
    (f"headers.X: {TEXT}", lambda ms: ms.fetch(URL, headers={"X": 1})),
    ("headers: Expected an object", lambda ms: ms.fetch(URL, headers="x", json={})),
    ("json that can be written as JSON, got a", lambda ms: ms.fetch(URL, method="POST", json=object())),
    (f"body: {TEXT}", lambda ms: ms.fetch(URL, method="POST", body=bytearray(b"x"))),
    (f"req_id: {TEXT}", lambda ms: ms.fetches.get(5)),
    ("req_id: Expected text of at least 1", lambda ms: ms.fetches.cancel("")),
    ("states.0: Expected one of pending", lambda ms: anext(ms.fetches.iterate(states=["x"]))),
    ("Expected expect to be a version", lambda ms: ms.records("c", dict).put("k", {}, expect="x")),
    ("Expected expires_in to be more than 0 seconds", lambda ms: ms.records("c", dict).put("k", {}, expires_in="x")),
    ("got 5: Expected an object, got a whole number", lambda ms: ms.records("c", dict).put("k", 5)),
    ("Expected wait_seconds from 0", lambda ms: ms.lock("x").hold(wait_seconds="y").__aenter__()),
]


@pytest.mark.parametrize(("words", "ask"), LIBRARY, ids=[f"{at}-{words}" for at, (words, _) in enumerate(LIBRARY)])
async def test_a_wrong_argument_of_a_program_is_refused_by_its_name(words: str, ask: Ask) -> None:
    async with Mainspring("memory://").at_rest() as ms:
        with pytest.raises(InvalidInput) as refused:
            await ask(ms)
        assert words in refused.value.detail


async def test_wrong_names_of_locks_and_origins_are_refused() -> None:
    async with Mainspring("memory://").at_rest() as ms:
        ask: Any = ms
        with pytest.raises(InvalidInput, match="Expected a lock name of 1 to 255 characters, got 5"):
            ask.lock(5)
        with pytest.raises(InvalidInput, match=r"Expected ttl_seconds from 0\.1 to 86400, got 'y'"):
            ask.lock("x", ttl_seconds="y")
        with pytest.raises(InvalidInput, match="Expected an id of 1 to 255 printable characters, got 5"):
            ask.origin(Basket, 5)


CLIENT: list[tuple[str, Callable[[Any], object]]] = [
    (f"delay_seconds: {NUMBER}, got text", lambda c: c.timers.create("x", **HOOK, delay_seconds="5")),
    (f"callback_url: {TEXT}", lambda c: c.timers.create("x", callback_url=5, delay_seconds=5)),
    ("got a value of the type object", lambda c: c.timers.create("x", **HOOK, delay_seconds=5, payload=object())),
    ("JSON, got the number nan", lambda c: c.timers.create("x", **HOOK, delay_seconds=5, payload=float("nan"))),
    ("one of execute_at and delay_seconds, got neither", lambda c: c.timers.create("x", **HOOK)),
    ("Expected at least one field to change, got none", lambda c: c.namespaces.update("default")),
    ("execute_at: Expected a datetime", lambda c: c.timers.update("x", execute_at="x")),
    ("limit: Expected a whole number of at least 1", lambda c: c.timers.list(limit=0)),
    (f"timer_id: {TEXT}", lambda c: c.timers.run_now(5)),
    ("shard_count: Expected a whole number of at most 4096", lambda c: c.namespaces.create("x", shard_count=10**9)),
    (f"name: {TEXT}", lambda c: c.jobs.delete(5)),
    ("kinds: Expected a list such as ['manual'], got 'manual'", lambda c: c.jobs.runs("j", kinds="manual")),
    ("states: Expected a list such as ['parked']", lambda c: c.timers.list(states="parked")),
    ("due_to: Expected a datetime, got '2026-01-01'", lambda c: c.timers.list(due_to="2026-01-01")),
    ("due_to: Expected a datetime, got None", lambda c: c.timers.list(due_to=None)),
    (f"delay_seconds: {SPAN}", lambda c: c.timers.create("x", **HOOK, delay_seconds=timedelta(seconds=5))),
    (f"timeout_seconds: {SPAN}", lambda c: c.jobs.create("j", "@daily", url=URL, timeout_seconds=timedelta(1))),
    (f"timeout_seconds: {SPAN}", lambda c: c.fetches.create(URL, timeout_seconds=timedelta(1))),
    ("timers: Expected CreateTimer messages, got {'timerId'", lambda c: c.timers.create_batch([{"timerId": "x"}])),
    ("timers: Expected CreateTimer messages, got 5", lambda c: c.timers.create_batch(5)),
    ("since: Expected a datetime with", lambda c: c.fetches.list(since=NAIVE)),
    ("Expected seconds from 0", lambda c: c.fetches.wait("x", "1")),
]


@pytest.mark.parametrize(("words", "ask"), CLIENT, ids=[f"{at}-{words}" for at, (words, _) in enumerate(CLIENT)])
def test_a_wrong_argument_of_a_client_is_refused_by_its_name(words: str, ask: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask(FakeMainspring.start_sync().client())
    assert words in refused.value.detail


def test_an_update_without_a_change_is_refused_by_every_service() -> None:
    client = FakeMainspring.start_sync().client()
    client.timers.create("t", **HOOK, delay_seconds=60)
    client.jobs.create("j", "@daily", url=URL)
    for ask in (lambda: client.timers.update("t"), lambda: client.jobs.update("j", if_generation=1)):
        with pytest.raises(InvalidInput, match="Expected at least one field to change, got none"):
            ask()
    assert client.timers.get("t").generation == client.jobs.get("j").generation == 1


def test_a_client_checks_what_it_is_made_with() -> None:
    wrong: Any = "x"
    with pytest.raises(ConfigError, match="timeout of more than 0 and up to 3600 s, got 'x'"):
        Client("http://127.0.0.1:1", timeout=wrong)
    with pytest.raises(ConfigError, match=r"Expected a server URL such as .*, got 5"):
        Client(cast(str, 5))
    with pytest.raises(ConfigError, match="Expected a token of visible ASCII"):
        Client("http://127.0.0.1:1", cast(str, 5))
    with pytest.raises(ConfigError, match="0 to 100 retries, got 'x'"):
        Client("http://127.0.0.1:1", retries=wrong)


def test_receivers_and_writers_of_timers_are_told_in_the_same_words() -> None:
    wrong: Any = "tomorrow"
    with pytest.raises(InvalidInput, match=r"^next_execute_at: Expected a datetime, got 'tomorrow'$"):
        callback_answer(next_execute_at=wrong)
    with pytest.raises(InvalidInput, match=r"^delay_seconds: Expected a number, got text$"):
        TimerWriter(namespace="app").create(None, "t", callback_url=URL, delay_seconds=wrong)


def test_all_wrong_arguments_are_named_and_point_to_the_fields_of_the_message() -> None:
    wrong: Any = {"delay_seconds": "x", "labels": {"orderId": 5}, "callback_timeout_seconds": 0, "headers": 1}
    with pytest.raises(InvalidInput) as refused:
        timer_request("t", namespace="app", callback_url=URL, **wrong)
    assert refused.value.detail == (
        "delay_seconds: Expected a number, got text; headers: Expected an object, got a whole number; "
        "callback_timeout_seconds: Expected a number of at least 1; and 1 more"
    )
    assert refused.value.errors[-1] == FieldError("/labels/orderId", "Expected text, got a whole number")
    assert refused.value.errors[0].pointer == "/delaySeconds"


def test_what_typing_allows_is_accepted() -> None:
    made = timer_request(
        "t", namespace="app", callback_url=URL, execute_at=datetime.now(UTC), labels=MappingProxyType({"a": "b"})
    )
    assert made.labels == {"a": "b"}
