"""Which results come back as they were: with a type, and with what a program says about its own types."""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import pydantic
import pytest

from mainspring.idempotency import AsyncIdempotentProcessor, IdempotentProcessor, InMemoryStore, NotRecorded


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal


class Receipt(pydantic.BaseModel, strict=True):
    number: int = pydantic.Field(alias="receiptNumber")
    day: date
    lines: list[Line]


@attrs.frozen
class Parcel:
    weight: int
    receipt: Receipt | None = None


RECEIPT = Receipt(receiptNumber=7, day=date(2026, 2, 28), lines=[Line(sku="a", price=Decimal("1.10"))])


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (RECEIPT, Receipt),
        ([RECEIPT, RECEIPT], list[Receipt]),
        ({"a": RECEIPT}, dict[str, Receipt]),
        (None, Receipt | None),
        (Parcel(1, RECEIPT), Parcel),
        (time(10, 30), time),
        (timedelta(minutes=1), timedelta),
        (PurePosixPath("/tmp/a"), PurePosixPath),
        (Path("a/b"), Path),
        (IPv4Address("192.0.2.1"), IPv4Address),
        ([IPv6Network("2001:db8::/32")], list[IPv6Network]),
    ],
)
async def test_a_result_with_a_type_comes_back_as_it_was(result: Any, kind: Any) -> None:
    store = InMemoryStore()
    processor = IdempotentProcessor(store, lambda _: result, scope="results", result_type=kind)

    async def work(_: object) -> Any:
        raise AssertionError("Expected a replay")

    waiting = AsyncIdempotentProcessor(store, work, scope="results", result_type=kind)
    first, again, elsewhere = processor.process(1), processor.process(1), await waiting.process(1)
    assert first.result == again.result == elsewhere.result == result
    assert type(again.result) is type(elsewhere.result) is type(result)
    assert (first.was_replay, again.was_replay, elsewhere.was_replay) == (False, True, True)


def test_a_model_without_a_type_is_refused_with_the_way_out() -> None:
    processor = IdempotentProcessor(InMemoryStore(), lambda _: RECEIPT, scope="untyped")
    with pytest.raises(NotRecorded, match="result_type=") as refused:
        processor.process(1)
    assert refused.value.result is RECEIPT


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


def encode(value: Any) -> Any:
    if isinstance(value, Money):
        return value.cents
    raise NotImplementedError(f"no {type(value).__name__}")


def test_a_program_says_what_stands_for_its_own_types() -> None:
    ran: list[Money] = []

    def work(money: Money) -> Money:
        ran.append(money)
        return money

    processor = IdempotentProcessor(
        InMemoryStore(),
        work,
        scope="money",
        result_type=Money,
        encode=encode,
        decode=lambda kind, value: kind(value),
    )
    assert [processor.process(Money(12)).result for _ in range(2)] == [Money(12)] * 2
    assert ran == [Money(12)]
    without = IdempotentProcessor(InMemoryStore(), work, scope="money", result_type=Money, encode=encode)
    with pytest.raises(NotRecorded, match="say decode="):
        without.process(Money(12))
