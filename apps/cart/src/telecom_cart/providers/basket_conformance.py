"""The part of the contract that is about baskets, and may be repeated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from telecom_cart.model import Context
from telecom_cart.provider import Basket, Closed, ContextGone, Line, Unreachable
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.obedient_shop import HIDING, PHONE, PLAN, ObedientShop, filled, lines_in


class BasketConformance:
    """Baskets: everything here may be repeated."""

    async def test_a_basket_is_read_back_with_lines_prices_subtotal_and_currency(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        basket = await shop.provider.get_cart(context)
        assert set(basket.lines) == {PHONE, PLAN}
        assert replace(basket, lines=()) == Basket((), 98_999, "CAD", "")

    async def test_a_basket_may_be_empty(self, shop: ObedientShop) -> None:
        session = await shop.provider.open_session()
        context = await shop.provider.create_cart(session, (), currency="CAD")
        assert await shop.provider.get_cart(context) == Basket((), 0, "CAD", "")

    async def test_prices_are_exact_at_their_limits(self, shop: ObedientShop) -> None:
        lines = [Line(f"p{n}", 1, price) for n, price in enumerate((1, 10, 29, 57, 1_999, 99_999_999))]
        context = await filled(shop, *lines)
        assert await lines_in(shop, context) == set(lines)

    async def test_add_item_makes_the_quantity_this_one_however_often_it_is_asked(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        for quantity in (3, 3, 1, 999):
            await shop.provider.add_item(context, replace(PHONE, quantity=quantity))
            assert await lines_in(shop, context) == {replace(PHONE, quantity=quantity), PLAN}

    async def test_add_item_puts_in_what_was_not_there(self, shop: ObedientShop) -> None:
        context = await filled(shop, PHONE)
        for _ in range(2):
            await shop.provider.add_item(context, PLAN)
            assert await lines_in(shop, context) == {PHONE, PLAN}

    async def test_add_item_changes_the_price(self, shop: ObedientShop) -> None:
        context = await filled(shop, PHONE)
        await shop.provider.add_item(context, replace(PHONE, price=1_00))
        assert await lines_in(shop, context) == {replace(PHONE, price=1_00)}

    async def test_a_line_that_the_platform_has_twice_is_one_line_after_add_item(self, shop: ObedientShop) -> None:
        context = await filled(shop, PHONE)
        shop.double_lines()
        shop.fault("add_item", Fault(FaultKind.APPLY_LATER, seconds=5))
        with pytest.raises(Unreachable):
            await shop.provider.add_item(context, PLAN)
        await shop.provider.add_item(context, PLAN)
        shop.advance(6)
        await shop.provider.add_item(context, PLAN)
        assert await lines_in(shop, context) == {PHONE, PLAN}
        assert (await shop.provider.get_cart(context)).subtotal == 98_999

    async def test_remove_item_takes_a_product_out_however_often_it_is_asked(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        for _ in range(2):
            await shop.provider.remove_item(context, PHONE.product_id)
            assert await lines_in(shop, context) == {PLAN}

    async def test_remove_item_of_what_was_never_there_changes_nothing(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        await shop.provider.remove_item(context, "never/there")
        assert await lines_in(shop, context) == {PHONE, PLAN}

    async def test_customers_have_baskets_of_their_own(self, shop: ObedientShop) -> None:
        one, other = await filled(shop, PHONE), await filled(shop, PLAN)
        assert one != other
        assert (await lines_in(shop, one), await lines_in(shop, other)) == ({PHONE}, {PLAN})

    async def test_a_customer_who_has_a_basket_gets_one_that_can_be_used(self, shop: ObedientShop) -> None:
        one = await filled(shop, PHONE)
        other = await shop.provider.create_cart(one.session, (PLAN,), currency="CAD")
        assert await shop.provider.validate_context(other)
        if shop.has_one_basket:
            assert other == one
            assert await lines_in(shop, other) == {PHONE}

    async def test_a_basket_that_nobody_knew_of_is_adopted(self, shop: ObedientShop) -> None:
        shop.fault("create_cart", Fault(FaultKind.QUOTA))
        context = await filled(shop, PHONE)
        for line in await lines_in(shop, context) - {PHONE}:
            await shop.provider.remove_item(context, line.product_id)
        await shop.provider.add_item(context, PHONE)
        assert await lines_in(shop, context) == {PHONE}

    async def test_an_expired_basket_is_gone_for_every_verb(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        assert await shop.provider.validate_context(context)
        shop.advance(1801)
        await self.is_gone(shop, context)
        assert await shop.provider.close_cart(context) is Closed.GONE

    async def test_a_basket_that_never_was_is_gone(self, shop: ObedientShop) -> None:
        session = await shop.provider.open_session()
        await self.is_gone(shop, Context(session, "never-was"))

    async def test_changes_prolong_the_life_of_a_basket(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        for quantity in (2, 3, 4):
            shop.advance(1200)
            await shop.provider.add_item(context, replace(PHONE, quantity=quantity))
        assert await shop.provider.validate_context(context)

    async def test_a_basket_outlives_the_token_of_its_customer(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        shop.forget_tokens()
        await shop.provider.add_item(context, replace(PHONE, quantity=2))
        shop.forget_tokens()
        assert await lines_in(shop, context) == {replace(PHONE, quantity=2), PLAN}

    async def test_the_prices_of_the_platform_are_seen(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        shop.set_price(PHONE.product_id, 90_000)
        assert await lines_in(shop, context) == {replace(PHONE, price=90_000), PLAN}
        shop.fault("get_cart", Fault(FaultKind.PRICE_DRIFT, times=2))
        assert await lines_in(shop, context) == {replace(PHONE, price=90_001), replace(PLAN, price=4_501)}
        assert (await shop.provider.get_cart(context)).subtotal == 90_001 + 2 * 4_501
        assert await lines_in(shop, context) == {replace(PHONE, price=90_000), PLAN}

    async def test_the_reference_is_read_back_and_can_be_changed(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        for reference in ("a-1", "a-1", "b" * 48 + "-2"):
            await shop.provider.set_reference(context, reference)
            assert (await shop.provider.get_cart(context)).reference == reference
        assert await lines_in(shop, context) == {PHONE, PLAN}

    @pytest.mark.parametrize("kind", HIDING)
    async def test_after_a_fault_that_stays_every_verb_is_unreachable(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        context = await filled(shop)
        shop.fault("*", Fault(kind, times=None, seconds=3600))
        for act in self.verbs(shop, context, reading=True).values():
            with pytest.raises(Unreachable):
                await act()
        with pytest.raises(Unreachable):
            await shop.provider.close_cart(context)

    @pytest.mark.parametrize("kind", HIDING)
    @pytest.mark.parametrize("verb", ["add_item", "remove_item", "set_reference"])
    async def test_a_change_that_was_not_answered_is_right_once_repeated(
        self, shop: ObedientShop, verb: str, kind: FaultKind
    ) -> None:
        context = await filled(shop)
        act = self.verbs(shop, context)[verb]
        shop.fault(verb, Fault(kind, seconds=3600))
        try:
            await act()
        except Unreachable:
            await act()
        kept = {"add_item": {replace(PHONE, quantity=7), PLAN}, "remove_item": {PLAN}}.get(verb, {PHONE, PLAN})
        basket = await shop.provider.get_cart(context)
        assert set(basket.lines) == kept
        assert basket.reference == ("r-1" if verb == "set_reference" else "")

    @pytest.mark.parametrize(
        "kind", [FaultKind.FAIL_BEFORE, FaultKind.APPLY_THEN_DROP, FaultKind.APPLY_THEN_5XX, FaultKind.APPLY_LATER]
    )
    @pytest.mark.parametrize("verb", ["add_item", "remove_item", "set_reference"])
    async def test_a_change_that_was_not_answered_is_told_and_not_repeated(
        self, shop: ObedientShop, verb: str, kind: FaultKind
    ) -> None:
        """It may happen at any time from now on, also after a repeat and all that came later."""
        context = await filled(shop)
        shop.fault(verb, Fault(kind, seconds=3600))
        with pytest.raises(Unreachable):
            await self.verbs(shop, context)[verb]()

    @pytest.mark.parametrize("kind", HIDING)
    async def test_a_basket_that_was_not_answered_is_made_when_asked_again(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        session = await shop.provider.open_session()
        shop.fault("create_cart", Fault(kind, seconds=3600))
        try:
            context = await shop.provider.create_cart(session, (PHONE,), currency="CAD")
        except Unreachable:
            context = await shop.provider.create_cart(session, (PHONE,), currency="CAD")
        assert await lines_in(shop, context) == {PHONE}

    async def test_a_slow_platform_is_waited_for(self, shop: ObedientShop) -> None:
        context = await filled(shop)
        shop.fault("*", Fault(FaultKind.DELAY, times=None, seconds=0.02))
        await shop.provider.add_item(context, replace(PHONE, quantity=2))
        assert await lines_in(shop, context) == {replace(PHONE, quantity=2), PLAN}

    async def test_a_basket_that_expires_while_it_is_changed_is_gone(self, shop: ObedientShop) -> None:
        for verb in ("add_item", "remove_item", "set_reference"):
            context = await filled(shop)
            shop.fault(verb, Fault(FaultKind.EXPIRE_NOW))
            with pytest.raises(ContextGone):
                await self.verbs(shop, context)[verb]()

    async def test_many_tasks_use_a_provider_at_once(self, shop: ObedientShop) -> None:
        contexts = await asyncio.gather(*(filled(shop, Line(f"p{n}", n + 1, 100)) for n in range(10)))
        baskets = await asyncio.gather(*(shop.provider.get_cart(context) for context in contexts))
        assert [basket.subtotal for basket in baskets] == [100 * (n + 1) for n in range(10)]

    async def is_gone(self, shop: ObedientShop, context: Context) -> None:
        for act in self.verbs(shop, context).values():
            with pytest.raises(ContextGone):
                await act()
        with pytest.raises(ContextGone):
            await shop.provider.get_cart(context)
        assert not await shop.provider.validate_context(context)

    def verbs(self, shop: ObedientShop, context: Context, *, reading: bool = False) -> dict[str, Any]:
        provider = shop.provider
        changes = {
            "add_item": lambda: provider.add_item(context, replace(PHONE, quantity=7)),
            "remove_item": lambda: provider.remove_item(context, PHONE.product_id),
            "set_reference": lambda: provider.set_reference(context, "r-1"),
        }
        reads = {
            "get_cart": lambda: provider.get_cart(context),
            "validate_context": lambda: provider.validate_context(context),
            "create_cart": lambda: provider.create_cart(context.session, (), currency="CAD"),
        }
        return {**changes, **reads} if reading else changes
