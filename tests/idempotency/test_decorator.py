"""`@idempotent`, for functions and coroutine functions."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mainspring.errors import ConfigError
from mainspring.idempotency import IdempotentProcessor, InMemoryStore, KeyReuse, idempotent

STORE = InMemoryStore()
runs: list[object] = []


@idempotent(STORE)
def charge(order: dict[str, object]) -> int:
    """Charge it."""
    runs.append(order)
    return len(runs)


@idempotent(STORE, scope="refund", key=lambda order_id, cents, reason="": order_id)
def refund(order_id: str, cents: int, reason: str = "") -> str:
    return f"{order_id} {cents} {reason}"


@idempotent(STORE)
async def ship(order_id: str, *, express: bool = False) -> int:
    await asyncio.sleep(0.01)
    runs.append(order_id)
    return len(runs)


def test_a_function_runs_once_for_equal_arguments() -> None:
    first = charge({"id": 1, "received_at": "now"})
    assert charge({"id": 1, "received_at": "later"}) == first
    assert charge(order={"id": 1}) == first
    assert charge({"id": 2}) == first + 1
    assert (charge.processor.replays.executed, charge.processor.replays.replayed) == (2, 2)


def test_a_key_can_be_made_of_the_arguments() -> None:
    assert refund("a", 100) == "a 100 "
    assert refund("a", cents=100.0) == "a 100 "  # type: ignore[arg-type]
    with pytest.raises(KeyReuse):
        refund("a", 200)


async def test_a_coroutine_function_stays_one() -> None:
    assert inspect.iscoroutinefunction(ship)
    results = await asyncio.gather(*(ship("a") for _ in range(10)), ship("a", express=False), ship("a", express=True))
    assert len(set(results)) == 2


def test_the_function_keeps_its_name() -> None:
    assert charge.__doc__ == "Charge it."
    assert charge.processor.scope == f"{__name__}.charge"


class Till:
    @idempotent(InMemoryStore(), exclude_fields=("self",))
    def charge(self, order: str) -> int:
        return id(self)


def test_a_method_leaves_out_its_object() -> None:
    one, other = Till(), Till()
    assert one.charge("order") == other.charge("order") == id(one)


def test_parameters_without_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\*orders"):

        @idempotent(STORE, scope="unnamed")
        def several(*orders: str) -> None: ...


def test_a_key_that_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"Expected a function as key=, such as lambda .*, got 'id'"):
        idempotent(STORE, key="id")  # type: ignore[arg-type]


def test_parentheses_that_were_left_out_are_named() -> None:
    def work(order: str) -> None: ...

    with pytest.raises(ConfigError, match=r"Expected a store, as in @idempotent\(store\), got a function"):
        idempotent(work)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["received_at", "correlation_id", "retry_count", "source_ip"])
def test_an_argument_counts_whatever_it_is_called(name: str) -> None:
    ran: list[dict[str, object]] = []

    def block(**given: object) -> int:
        ran.append(given)
        return len(ran)

    names: dict[str, Any] = {name: "", "reason": ""}
    block.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in names]
    )
    once = idempotent(InMemoryStore(), scope="block")(block)
    assert [once(**names | {name: value}) for value in ("1.1.1.1", "2.2.2.2", "1.1.1.1")] == [1, 2, 1]


def test_what_is_named_is_left_out_of_the_arguments() -> None:
    @idempotent(InMemoryStore(), scope="named", exclude_fields=("source_ip", "order.received_at"))
    def place(order: dict[str, object], source_ip: str) -> str:
        return source_ip

    assert place({"id": 1, "received_at": 1}, "1.1.1.1") == place({"id": 1, "received_at": 2}, "2.2.2.2") == "1.1.1.1"


def test_generator_functions_are_refused() -> None:
    def numbers(order: str) -> Iterator[int]:
        yield 1

    async def later(order: str) -> AsyncIterator[int]:
        yield 1

    for work in (numbers, later):
        with pytest.raises(ConfigError, match="got a generator function"):
            idempotent(STORE, scope="generator")(work)
        with pytest.raises(ConfigError, match="got a generator function"):
            IdempotentProcessor(STORE, work, scope="generator")


async def _ship(order: str) -> str:
    return order


def test_a_plain_function_that_says_it_returns_an_awaitable_is_refused() -> None:
    def later(order: str) -> Awaitable[str]:
        return _ship(order)

    with pytest.raises(ConfigError, match=r"returns Awaitable\[str\]: use `async def`"):
        idempotent(STORE, scope="awaitable")(later)


def test_an_awaitable_behind_a_plain_function_is_told_of_and_leaves_the_key_free() -> None:
    works: list[Callable[[str], object]] = [lambda order: _ship(order + "!"), lambda order: (1 for _ in order)]
    for work in works:
        store = InMemoryStore()
        with pytest.raises(ConfigError, match="that has not begun"):
            idempotent(store, scope="behind")(work)("a")
        assert idempotent(store, scope="behind")(lambda order: order)("a") == "a"


async def test_coroutine_functions_behind_others_stay_what_they_are() -> None:
    class Shipping:
        async def __call__(self, order: str) -> str:
            return order

    for work in (functools.partial(_ship), Shipping()):
        assert await idempotent(InMemoryStore(), scope="callable")(work)("a") == "a"


def test_static_methods_and_class_methods_are_told_where_to_put_it() -> None:
    def work(order: str) -> None: ...

    with pytest.raises(ConfigError, match="below @staticmethod, next to the function"):
        idempotent(STORE)(staticmethod(work))
    with pytest.raises(ConfigError, match="below @classmethod"):
        idempotent(STORE)(classmethod(work))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="got a function"):
        idempotent(staticmethod(work))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Expected a store"):
        idempotent("sqlite:///app.db")  # type: ignore[arg-type]

    class Till:
        @staticmethod
        @idempotent(InMemoryStore(), scope="static")
        def charge(order: str) -> str:
            return order

    assert Till.charge("a") == "a"
    till: Any = Till()
    assert till.charge("a") == "a"


def test_a_method_has_to_say_whether_its_object_counts() -> None:
    with pytest.raises(ConfigError, match=r'exclude_fields=\("self",\) if calls of all objects share their keys'):

        @dataclass
        class Account:
            cents: int

            @idempotent(STORE, scope="account")
            def pay(self, order: str) -> int:
                return self.cents

    @dataclass
    class Counted:
        cents: int

        @idempotent(InMemoryStore(), scope="counted", exclude_fields=())
        def pay(self, order: str) -> int:
            return self.cents

        @idempotent(InMemoryStore(), scope="shared", exclude_fields=("self",))
        def close(self) -> int:
            return self.cents

        @idempotent(InMemoryStore(), scope="keyed", key=lambda self, order: order, match="key")
        def refund(self, order: object) -> int:
            return self.cents

    assert (Counted(1).pay("a"), Counted(2).pay("a")) == (1, 2)
    assert (Counted(1).close(), Counted(2).close()) == (1, 1)
    assert (Counted(1).refund("a"), Counted(2).refund("a")) == (1, 1)


def test_a_key_alone_decides_only_if_there_is_one() -> None:
    with pytest.raises(ConfigError, match="Expected key= with match"):
        idempotent(STORE, match="key")
