"""The part of the contract that is about orders: checkout, find_order, close_cart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from telecom_cart.provider import (
    Absent,
    Closed,
    ContextGone,
    Found,
    NotSent,
    ProviderError,
    Refused,
    Uncertain,
    Unreachable,
    Unsure,
)
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.obedient_shop import (
    HIDING,
    PHONE,
    PLAN,
    REFERENCE,
    SINCE,
    ObedientShop,
    SeenOrder,
    filled,
    lines_in,
)


class OrderConformance:
    """checkout, find_order, close_cart"""

    async def test_an_order_is_made_of_a_basket_and_consumes_it(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        placed = await shop.provider.checkout(context, REFERENCE)
        assert placed.number
        assert placed.is_live
        assert shop.orders() == [SeenOrder(REFERENCE, True, 98_999)]
        assert not await shop.provider.validate_context(context)
        with pytest.raises(ContextGone):
            await shop.provider.get_cart(context)
        assert await shop.provider.close_cart(context) is Closed.GONE

    async def test_an_order_is_found_by_its_reference_with_the_same_number(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        placed = await shop.provider.checkout(context, REFERENCE)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert [(order.number, order.is_live) for order in found.orders] == [(placed.number, True)]

    async def test_an_order_says_what_it_was_made_at_although_the_price_has_changed(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.PRICE_DRIFT))
        placed = await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == [SeenOrder(REFERENCE, True, 98_999 + 3)]
        assert placed.subtotal == 98_999 + 3
        shop.advance(shop.provider.lookup.lag_seconds or 0)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert [order.subtotal for order in found.orders] == [98_999 + 3]

    async def test_the_reference_of_nobody_is_absent(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        assert await shop.provider.find_order(context, REFERENCE, since=SINCE) == Absent()
        await shop.provider.checkout(context, REFERENCE)
        assert await shop.provider.find_order(context, "cart-7-2", since=SINCE) == Absent()
        assert await shop.provider.find_order(context, "cart-7", since=SINCE) == Absent()

    async def test_a_repeat_of_checkout_makes_no_second_order(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        await shop.provider.checkout(context, REFERENCE)
        for reference in (REFERENCE, "cart-7-2"):
            with pytest.raises(Refused):
                await shop.provider.checkout(context, reference)
        assert len(shop.orders()) == 1

    async def test_of_many_checkouts_at_once_one_makes_an_order(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        asked = (shop.provider.checkout(context, REFERENCE) for _ in range(5))
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert len(shop.orders()) == 1
        assert all(not isinstance(result, BaseException) or isinstance(result, ProviderError) for result in results)

    async def test_a_basket_that_carries_another_reference_is_not_ordered(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference="cart-7-1")
        with pytest.raises(Refused, match="reference"):
            await shop.provider.checkout(context, "cart-7-2")
        assert shop.orders() == []

    async def test_an_expired_basket_is_refused_and_makes_no_order(self, shop: ObedientShop) -> None:
        for before in (True, False):
            context = await filled(shop, reference=REFERENCE)
            if before:
                shop.expire(context)
            else:
                shop.fault("checkout", Fault(FaultKind.EXPIRE_NOW))
            with pytest.raises(Refused):
                await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []

    async def test_a_token_that_expired_before_checkout_is_renewed(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.forget_tokens()
        assert (await shop.provider.checkout(context, REFERENCE)).is_live

    @pytest.mark.parametrize("kind", [FaultKind.APPLY_THEN_DROP, FaultKind.APPLY_THEN_5XX])
    async def test_an_order_whose_answer_was_lost_is_uncertain_and_can_be_found(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(kind))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert [order.is_live for order in found.orders] == [True]
        assert len(shop.orders()) == 1

    async def test_an_order_that_failed_without_a_reason_is_uncertain(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.FAIL_BEFORE))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []
        assert await shop.provider.find_order(context, REFERENCE, since=SINCE) == Absent()

    async def test_an_order_that_may_come_later_is_uncertain_and_comes(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.APPLY_LATER, seconds=30))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        assert await shop.provider.find_order(context, REFERENCE, since=SINCE) == Absent()
        shop.advance(31)
        assert isinstance(await shop.provider.find_order(context, REFERENCE, since=SINCE), Found)
        assert len(shop.orders()) == 1

    async def test_a_throttled_checkout_is_refused_and_not_repeated(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.THROTTLE))
        with pytest.raises(Refused) as refused:
            await shop.provider.checkout(context, REFERENCE)
        assert not isinstance(refused.value, NotSent)
        assert shop.orders() == []

    @pytest.mark.parametrize("kind", [FaultKind.APPLY_THEN_THROTTLE, FaultKind.APPLY_THEN_REFUSE])
    async def test_a_refusal_of_an_order_that_was_sent_is_never_said_to_be_of_one_that_was_not(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(kind))
        with pytest.raises((Refused, Uncertain)) as raised:
            await shop.provider.checkout(context, REFERENCE)
        assert not isinstance(raised.value, NotSent)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert len(shop.orders()) == 1

    @pytest.mark.parametrize("change", ["quantity", "price", "another product", "a product less", "currency"])
    async def test_a_basket_that_is_not_what_was_wanted_any_more_is_not_ordered(
        self, shop: ObedientShop, change: str
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        wanted = await shop.provider.get_cart(context)
        if change == "quantity":
            await shop.provider.add_item(context, replace(PHONE, quantity=3))
        elif change == "price":
            shop.set_price(PHONE.product_id, 1)
        elif change == "another product":
            await shop.provider.add_item(context, replace(PHONE, product_id="other"))
        elif change == "a product less":
            await shop.provider.remove_item(context, PHONE.product_id)
        else:
            wanted = replace(wanted, currency="USD")
        with pytest.raises(NotSent):
            await shop.provider.checkout(context, REFERENCE, basket=wanted)
        assert shop.orders() == []
        now = await shop.provider.get_cart(context)
        assert (await shop.provider.checkout(context, REFERENCE, basket=now)).is_live

    async def test_an_order_says_its_currency(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        assert (await shop.provider.checkout(context, REFERENCE)).currency == "CAD"

    async def test_an_order_that_carries_no_reference_is_an_order_that_is_not_found(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.lose_references()
        placed = await shop.provider.checkout(context, REFERENCE)
        assert (placed.is_live, placed.is_findable) == (True, False)

    @pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.DOWN, FaultKind.THROTTLE])
    async def test_a_checkout_that_could_not_begin_makes_no_order(self, shop: ObedientShop, kind: FaultKind) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("*", Fault(kind, times=None))
        with pytest.raises((Unreachable, Uncertain, Refused)):
            await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []

    async def test_a_platform_that_breaks_off_may_not_be_said_to_have_refused(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.DOWN))
        with pytest.raises((Unreachable, Uncertain)):
            await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []

    async def test_an_order_that_is_stored_as_failed_is_refused_and_found_as_no_live_one(
        self, shop: ObedientShop
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.FAILED_ORDER_400))
        with pytest.raises(Refused):
            await shop.provider.checkout(context, REFERENCE)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert [order.is_live for order in found.orders] == [False]
        await shop.provider.set_reference(context, "cart-7-2")
        assert (await shop.provider.checkout(context, "cart-7-2")).is_live

    async def test_a_slow_order_is_waited_for_and_made_once(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.DELAY, seconds=0.1))
        assert (await shop.provider.checkout(context, REFERENCE)).is_live
        assert len(shop.orders()) == 1

    async def test_a_cancelled_order_is_found_as_no_live_one(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        await shop.provider.checkout(context, REFERENCE)
        shop.cancel_order(REFERENCE)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert [order.is_live for order in found.orders] == [False]

    async def test_two_orders_with_a_reference_are_both_found_the_first_one_first(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        placed = await shop.provider.checkout(context, REFERENCE)
        shop.plant_order(context, REFERENCE)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert found.orders[0].number == placed.number
        assert len(found.orders) == (2 if shop.finds_many else 1)

    async def test_an_order_is_found_within_the_lag_that_is_declared(self, shop: ObedientShop) -> None:
        lag = shop.provider.lookup.lag_seconds
        assert lag is not None
        shop.lag(lag or 20)
        context = await filled(shop, reference=REFERENCE)
        await shop.provider.checkout(context, REFERENCE)
        if lag:
            assert await shop.provider.find_order(context, REFERENCE, since=SINCE) == Absent()
            shop.advance(lag + 1)
        assert isinstance(await shop.provider.find_order(context, REFERENCE, since=SINCE), Found)

    async def test_an_order_is_found_among_many(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        for n in range(120):
            shop.plant_order(context, f"other-{n}")
        await shop.provider.checkout(context, REFERENCE)
        for n in range(120):
            shop.plant_order(context, f"another-{n}")
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert len(found.orders) == 1

    @pytest.mark.parametrize("kind", HIDING)
    async def test_a_platform_that_cannot_tell_is_unsure_and_never_absent(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        await shop.provider.checkout(context, REFERENCE)
        shop.fault("find_order", Fault(kind, times=None, seconds=3600))
        assert isinstance(await shop.provider.find_order(context, REFERENCE, since=SINCE), Unsure)
        shop.clear_faults()
        assert isinstance(await shop.provider.find_order(context, REFERENCE, since=SINCE), Found)

    async def test_a_closed_basket_can_never_be_ordered(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        assert await shop.provider.close_cart(context) is Closed.CLOSED
        with pytest.raises(Refused):
            await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []
        assert not await shop.provider.validate_context(context)
        with pytest.raises(ContextGone):
            await shop.provider.get_cart(context)
        assert await shop.provider.close_cart(context) is Closed.GONE

    async def test_an_order_that_comes_after_its_basket_was_closed_is_not_made(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.APPLY_LATER, seconds=30))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        assert await shop.provider.close_cart(context) is Closed.CLOSED
        shop.advance(31)
        assert await shop.provider.find_order(context, REFERENCE, since=SINCE) == Absent()
        assert shop.orders() == []

    async def test_an_order_that_is_made_while_its_basket_is_closed_is_found(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.APPLY_LATER, seconds=0.3))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        # Wherever a provider needs several requests to close a basket, the order is made between two of them.
        shop.fault("close_cart", Fault(FaultKind.DELAY, times=None, seconds=0.2))
        closed = await shop.provider.close_cart(context)
        shop.advance(60)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert len(shop.orders()) == (1 if isinstance(found, Found) else 0)
        assert closed is Closed.GONE or not shop.orders()

    @pytest.mark.parametrize("requests", [0, 1, 2])
    async def test_a_basket_that_was_closed_half_way_is_not_gone_as_long_as_it_can_be_ordered(
        self, shop: ObedientShop, requests: int
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.APPLY_LATER, seconds=30))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        if requests:
            shop.fault("close_cart", Fault(FaultKind.DELAY, times=requests, seconds=0))
        shop.fault("close_cart", Fault(FaultKind.FAIL_BEFORE, times=None))
        try:
            await shop.provider.close_cart(context)
        except Unreachable:
            assert await shop.provider.validate_context(context)
            shop.clear_faults()
            assert await shop.provider.close_cart(context) is Closed.CLOSED
        assert not await shop.provider.validate_context(context)
        shop.advance(31)
        assert shop.orders() == []

    async def test_an_empty_basket_is_closed_as_any_other(self, shop: ObedientShop) -> None:
        session = await shop.provider.open_session()
        context = await shop.provider.create_cart(session, (), currency="CAD")
        assert await shop.provider.close_cart(context) is Closed.CLOSED
        assert not await shop.provider.validate_context(context)

    @pytest.mark.parametrize("kind", HIDING)
    async def test_a_close_that_was_not_answered_closes_once_repeated(
        self, shop: ObedientShop, kind: FaultKind
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("close_cart", Fault(kind, seconds=3600))
        try:
            await shop.provider.close_cart(context)
        except Unreachable:
            await shop.provider.close_cart(context)
        with pytest.raises(Refused):
            await shop.provider.checkout(context, REFERENCE)
        assert shop.orders() == []

    async def test_closing_and_ordering_exclude_each_other(self, shop: ObedientShop) -> None:
        for n in range(5):
            reference = f"race-{n}"
            context = await filled(shop, reference=reference)
            ordered, closed = await asyncio.gather(
                shop.provider.checkout(context, reference), shop.provider.close_cart(context), return_exceptions=True
            )
            made = [order for order in shop.orders() if order.reference == reference]
            assert len(made) == (0 if isinstance(ordered, BaseException) else 1)
            assert closed is (Closed.GONE if made else Closed.CLOSED)

    async def test_a_customer_whose_basket_was_ordered_or_closed_gets_another(self, shop: ObedientShop) -> None:
        context = await filled(shop, PHONE, reference=REFERENCE)
        await shop.provider.checkout(context, REFERENCE)
        second = await shop.provider.create_cart(context.session, (PLAN,), currency="CAD")
        assert await lines_in(shop, second) == {PLAN}
        await shop.provider.close_cart(second)
        third = await shop.provider.create_cart(context.session, (PHONE,), currency="CAD")
        assert (await shop.provider.get_cart(third)).reference == ""
        assert len({context, second, third}) == 3


class LaterOrderConformance:
    """For a platform that accepts an order and makes it later: its provider is not `is_atomic`."""

    async def test_it_does_not_claim_that_orders_are_made_at_once(self, shop: ObedientShop) -> None:
        assert not shop.provider.is_atomic

    async def test_an_order_that_was_accepted_is_unsure_until_it_is_made_and_then_found_by_its_ticket(
        self, shop: ObedientShop
    ) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.lag(shop.provider.lookup.lag_seconds or 0)
        shop.fault("checkout", Fault(FaultKind.PROCESSING, seconds=500))
        tickets: list[str] = []

        async def accepted(ticket: str) -> None:
            tickets.append(ticket)

        asking = asyncio.ensure_future(shop.provider.checkout(context, REFERENCE, accepted=accepted))
        async with asyncio.timeout(10):
            while not tickets:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        asking.cancel()
        await shop.provider.close_cart(context)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE, ticket=tickets[0])
        assert isinstance(found, Unsure)
        assert found.is_being_made
        shop.advance(501)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE, ticket=tickets[0])
        assert isinstance(found, Found)
        assert [order.is_live for order in found.orders] == [True]
        assert len(shop.orders()) == 1

    async def test_an_order_that_was_accepted_and_whose_answer_was_lost_is_uncertain(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        shop.fault("checkout", Fault(FaultKind.PROCESSING_THEN_DROP, seconds=30))
        with pytest.raises(Uncertain):
            await shop.provider.checkout(context, REFERENCE)
        assert await shop.provider.validate_context(context)
        assert shop.orders() == []
        shop.advance(31)
        assert len(shop.orders()) == 1
