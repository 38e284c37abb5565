"""What is special about Salesforce: tokens, numbers of orders, and a platform that is told what it would not like."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest
from starlette.responses import Response

from telecom_cart.provider import Absent, Found, Line, Refused, Unsure
from telecom_cart.providers import salesforce
from telecom_cart.providers.answers import minor_units, shown
from telecom_cart.simulators.server import serving
from telecom_cart.simulators.simulation import Simulation
from tests.cart.shops import EVENTUAL, STRONG, SimulatedShop, salesforce_shop

LINE = Line("phone", 1, 100)


@pytest.fixture(scope="module")
async def served(anyio_backend: str) -> AsyncIterator[tuple[Simulation, str]]:
    async with serving("salesforce") as served:
        yield served


@pytest.fixture
async def shop(served: tuple[Simulation, str]) -> AsyncIterator[SimulatedShop]:
    async with salesforce_shop(*served, STRONG) as shop:
        yield shop


async def test_a_token_is_renewed_for_the_same_customer(shop: SimulatedShop) -> None:
    session = await shop.provider.open_session()
    context = await shop.provider.create_cart(session, [LINE], currency="CAD")
    shop.forget_tokens()
    assert (await shop.provider.get_cart(context)).lines == (LINE,)
    assert {basket.session for basket in shop.platform.baskets.values()} == {session}


async def test_an_order_with_another_number_is_said_not_to_be_found_by_a_strong_look_up(shop: SimulatedShop) -> None:
    shop.simulation.order_number_from_reference = False
    context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
    await shop.provider.set_reference(context, "r-1")
    placed = await shop.provider.checkout(context, "r-1")
    assert (placed.number != "r-1", placed.is_findable) == (True, False)


async def test_a_strict_platform_says_what_an_order_lacks(shop: SimulatedShop) -> None:
    shop.simulation.is_strict = True
    context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
    await shop.provider.set_reference(context, "r-1")
    with pytest.raises(Refused, match="invalid-basket") as refused:
        await shop.provider.checkout(context, "r-1")
    assert "addresses" in refused.value.told


async def test_the_basket_of_another_customer_is_refused(shop: SimulatedShop) -> None:
    context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
    stranger = type(context)(await shop.provider.open_session(), context.basket_id)
    with pytest.raises(Refused, match="invalid-customer"):
        await shop.provider.get_cart(stranger)


@pytest.mark.parametrize("ahead", [-86_400.0, -3600.0, 0.0, 3600.0])
async def test_an_order_is_found_however_far_the_clock_of_the_platform_is_from_ours(
    served: tuple[Simulation, str], ahead: float
) -> None:
    async with salesforce_shop(*served, EVENTUAL) as shop:
        shop.advance(ahead)
        context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
        await shop.provider.set_reference(context, "r-1")
        read_at = (await shop.provider.get_cart(context)).read_at
        assert read_at is not None
        await shop.provider.checkout(context, "r-1")
        shop.advance(31)
        assert isinstance(await shop.provider.find_order(context, "r-1", since=read_at), Found)


@pytest.mark.parametrize("ahead", [600.0, 86_400.0])
async def test_a_clock_that_runs_ahead_of_that_of_the_orders_hides_none(
    served: tuple[Simulation, str], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    simulation, _ = served
    truly = simulation.answer

    async def answer(*given: Any, **named: Any) -> Response:
        response = await truly(*given, **named)
        response.headers["Date"] = formatdate(simulation.now() + ahead, usegmt=True)
        return response

    async with salesforce_shop(*served, EVENTUAL) as shop:
        monkeypatch.setattr(simulation, "answer", answer)
        context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
        await shop.provider.set_reference(context, "r-1")
        since = (await shop.provider.get_cart(context)).read_at or 0
        await shop.provider.checkout(context, "r-1")
        [made] = shop.platform.orders
        shop.platform.orders.clear()  # as if the index had not seen it yet
        assert await shop.provider.find_order(context, "r-1", since=since) == Absent()
        shop.platform.orders.append(made)
        assert isinstance(await shop.provider.find_order(context, "r-1", since=since), Found)


async def test_a_search_looks_only_at_orders_since_then(served: tuple[Simulation, str]) -> None:
    async with salesforce_shop(*served, EVENTUAL) as shop:
        context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
        await shop.provider.set_reference(context, "r-1")
        await shop.provider.checkout(context, "r-1")
        now = int(time.time() * 1000)
        assert isinstance(await shop.provider.find_order(context, "r-1", since=now), Found)
        assert await shop.provider.find_order(context, "r-1", since=now + 3_600_000) == Absent()


@pytest.mark.parametrize("is_made", [True, False])
async def test_more_orders_than_one_look_goes_through_are_gone_through_by_the_next_ones(
    served: tuple[Simulation, str], monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    monkeypatch.setattr(salesforce, "MOST_PAGES", 4)
    async with salesforce_shop(*served, EVENTUAL) as shop:
        context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
        await shop.provider.set_reference(context, "r-1")
        shop.advance(-5000)  # so that its clock is not ahead of ours in the end
        since = (await shop.provider.get_cart(context)).read_at
        for n in range(700):
            shop.advance(1)
            shop.plant_order(context, f"other-{n}")
        if is_made:
            await shop.provider.checkout(context, "r-1")
        shop.advance(3600)
        looks = [await shop.provider.find_order(context, "r-1", since=since or 0) for _ in range(5)]
        assert isinstance(looks[0], Unsure)
        assert isinstance(looks[-1], Found if is_made else Absent)


async def test_what_a_search_may_not_see_yet_is_looked_for_again(
    served: tuple[Simulation, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salesforce, "MOST_PAGES", 1)
    async with salesforce_shop(*served, EVENTUAL) as shop:
        context = await shop.provider.create_cart(await shop.provider.open_session(), [LINE], currency="CAD")
        await shop.provider.set_reference(context, "r-1")
        since = (await shop.provider.get_cart(context)).read_at or 0
        await shop.provider.checkout(context, "r-1")
        [made] = shop.platform.orders
        shop.platform.orders.clear()  # as if the index had not seen it yet
        for n in range(60):
            shop.plant_order(context, f"other-{n}")
        assert isinstance(await shop.provider.find_order(context, "r-1", since=since), Unsure)
        shop.platform.orders.insert(0, made)
        assert isinstance(await shop.provider.find_order(context, "r-1", since=since), Found)


AMOUNTS: list[tuple[object, str, int | None]] = [
    ("10.10", "CAD", 1010),
    ("0.29", "CAD", 29),
    (7, "JPY", 7),
    ("1.234", "KWD", 1234),
    ("-1.00", "CAD", -100),
    ("10.005", "CAD", None),
    ("NaN", "CAD", None),
    ("Infinity", "CAD", None),
    (None, "CAD", None),
    ("", "CAD", None),
    ("1,00", "CAD", None),
    ({}, "CAD", None),
]


@pytest.mark.parametrize(("amount", "currency", "minor"), AMOUNTS)
def test_amounts_are_whole_minor_units_or_nothing(amount: object, currency: str, minor: int | None) -> None:
    assert minor_units(amount, currency) == minor


@pytest.mark.parametrize("text", ["?key=hidden!", "key=hidden&x=1", "Bearer hidden", "token: hidden", "KEY=hidden"])
def test_what_platforms_say_is_shown_without_secrets(text: str) -> None:
    assert "hidden" not in shown(text)
    assert len(shown("x" * 10_000)) == 300
