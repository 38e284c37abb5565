"""`@idempotent`, for functions and coroutine functions."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from mainspring.errors import ConfigError
from mainspring.idempotency import DEFAULT_EXCLUDED, InMemoryStore, KeyReuse, idempotent

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
    @idempotent(InMemoryStore(), exclude_fields=("self", *DEFAULT_EXCLUDED))
    def charge(self, order: str) -> int:
        return id(self)


def test_a_method_leaves_out_its_object() -> None:
    one, other = Till(), Till()
    assert one.charge("order") == other.charge("order") == id(one)


def test_parameters_without_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\*orders"):

        @idempotent(STORE, scope="unnamed")
        def several(*orders: str) -> None: ...


def test_parentheses_that_were_left_out_are_named() -> None:
    def work(order: str) -> None: ...

    with pytest.raises(ConfigError, match=r"Expected a store, as in @idempotent\(store\), got a function"):
        idempotent(work)  # type: ignore[arg-type]
