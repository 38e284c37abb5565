"""The whole cart before a platform that orders and then lies: never two orders, and no cart that is stuck."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutUnknown
from tests.cart.hostile_shop import ITEM, asked, shopping
from tests.cart.lying_platform import DEEP, Lie, instead, raw, within

TWICE = pytest.mark.parametrize("platform", ["salesforce", "shopify"])


LIES: dict[str, list[tuple[str, Lie]]] = {
    "salesforce": [
        ("checkout", instead(status=None)),
        ("checkout", instead(orderNo=["a"])),
        ("checkout", raw(DEEP)),
        ("checkout", raw(b"x" * 3_000_000)),
    ],
    "shopify": [
        ("checkout", within("data", "cartSubmitForCompletion", "result", "attemptId", value=None)),
        ("checkout_result", within("data", "cartCompletionAttempt", value=None)),
        ("checkout_result", raw(DEEP)),
        ("checkout", raw(b"x" * 3_000_000)),
    ],
}


@TWICE
@pytest.mark.parametrize("number", range(4))
async def test_an_order_that_is_told_in_an_odd_way_is_made_once_and_recorded(
    platform: str, number: int, tmp_path: Path
) -> None:
    verb, lie = LIES[platform][number]
    async with shopping(platform, tmp_path) as (told, shop):
        await shop.carts.add_item("ann", ITEM)
        told.lies[verb] = lie
        outcomes = [await asked(shop) for _ in range(3)]
        told.lies.clear()
        outcomes.append(await asked(shop))
        assert isinstance(outcomes[-1], Placed), outcomes
        assert all(isinstance(each, Placed | CheckoutUnknown) for each in outcomes)
        assert len([order for order in told.shop.orders() if order.is_live]) == 1


@TWICE
async def test_a_look_up_that_cannot_be_read_keeps_a_checkout_unknown_and_listed_until_it_can(
    platform: str, tmp_path: Path
) -> None:
    async with shopping(platform, tmp_path) as (told, shop):
        await shop.carts.add_item("ann", ITEM)
        told.lies |= {"checkout": raw(DEEP), "find_order": raw(DEEP)}
        for _ in range(2):
            assert isinstance(await asked(shop), CheckoutUnknown)
        assert [cart.user_id async for cart in shop.settlement.unknown()] == ["ann"]
        told.lies.clear()
        async with asyncio.timeout(20):
            while not isinstance(outcome := await asked(shop), Placed):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert outcome.order.number
        assert len([order for order in told.shop.orders() if order.is_live]) == 1
