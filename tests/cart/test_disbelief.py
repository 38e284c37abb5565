"""What is said of an order once it was asked for is not believed without asking, and not on one look that lags."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from telecom_cart.api.views import order_view
from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutFailed, CheckoutUnknown
from telecom_cart.model import Context
from telecom_cart.provider import Closed, Lookup, PlacedOrder
from telecom_cart.providers.faults import FaultKind
from telecom_cart.repository import Repository
from tests.cart.simulated_shop import World, simulate

SAID = pytest.mark.parametrize("kind", [FaultKind.APPLY_THEN_THROTTLE, FaultKind.APPLY_THEN_REFUSE])


async def asked_until_it_is_placed(world: World, cart_id: str) -> None:
    """Nobody is told that nothing was ordered, and in the end there is one order."""
    for _ in range(20):
        outcome = await world.try_to_check_out(cart_id=cart_id)
        assert isinstance(outcome, Placed | CheckoutUnknown), repr(outcome)
        await asyncio.sleep(1)
    assert isinstance(outcome, Placed)
    assert [outcome.order.number] == world.live_orders


@SAID
@pytest.mark.parametrize("is_atomic", [True, False])
@pytest.mark.parametrize("lookup", [Lookup(), Lookup(20.0), Lookup(None)], ids=str)
def test_an_order_that_was_made_is_found_although_the_platform_says_no(
    kind: FaultKind, is_atomic: bool, lookup: Lookup
) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 0 if lookup.lag_seconds == 0 else 15
        world.fault("checkout", kind)
        await asked_until_it_is_placed(world, cart.id)

    simulate(scenario, lookup=lookup, is_atomic=is_atomic)


def test_a_refusal_is_told_with_its_reasons_when_the_look_up_has_had_its_time() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.THROTTLE)
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        for _ in range(60):
            outcome = await world.try_to_check_out(cart_id=cart.id)
            if not isinstance(outcome, CheckoutUnknown):
                break
            await asyncio.sleep(1)
        assert isinstance(outcome, CheckoutFailed)
        assert "wants fewer requests" in str(outcome)
        assert (await world.check_out(cart_id=cart.id)).order.number in world.live_orders

    simulate(scenario, lookup=Lookup(20.0), is_atomic=False)


def test_a_refusal_that_is_answered_while_the_order_is_being_made_is_not_believed() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        send = world.provider.checkout

        async def sent_twice(context: Context, reference: str, **named: Any) -> PlacedOrder:
            world.platform.accept(context.basket_id, 8)
            world.provider.checkout = send  # type: ignore[method-assign]
            return await send(context, reference)

        world.provider.checkout = sent_twice  # type: ignore[method-assign]
        await asked_until_it_is_placed(world, cart.id)

    simulate(scenario, is_atomic=False)


def test_an_order_that_carries_no_reference_is_recorded_and_the_look_up_believed_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        world.platform.loses_references = True
        await world.fill()
        placed = await world.check_out()
        assert [placed.order.number] == world.live_orders
        assert placed.order.number in caplog.text
        cart = await world.fill("bob")
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        for _ in range(20):
            assert isinstance(await world.try_to_check_out("bob", cart_id=cart.id), CheckoutUnknown)
            await asyncio.sleep(30)
        assert len(world.live_orders) == 2

    for lookup in (Lookup(), Lookup(20.0)):
        for is_atomic in (True, False):
            with caplog.at_level(logging.INFO, "telecom_cart"):
                simulate(scenario, lookup=lookup, is_atomic=is_atomic)


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_strong_look_up_that_does_not_find_what_was_just_ordered_is_believed_no_more(is_atomic: bool) -> None:
    async def scenario(world: World) -> None:
        world.platform.is_blind = True
        await world.fill()
        placed = await world.check_out()
        assert [placed.order.number] == world.live_orders
        assert await world.shop.trust.doubt()
        cart = await world.fill("bob")
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        for _ in range(20):
            assert isinstance(await world.try_to_check_out("bob", cart_id=cart.id), CheckoutUnknown)
            await asyncio.sleep(30)
        assert len(world.live_orders) == 2

    simulate(scenario, is_atomic=is_atomic)


def test_an_order_that_was_accepted_and_is_not_found_by_its_reference_is_told_so_by_its_ticket() -> None:
    async def scenario(world: World) -> None:
        world.platform.loses_references = True
        cart = await world.fill()
        world.fault("checkout", FaultKind.PROCESSING, seconds=30)
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        await asyncio.sleep(120)
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders
        assert await world.shop.trust.doubt()

    simulate(scenario, is_atomic=False)


def test_a_look_up_that_finds_an_order_as_cancelled_has_found_it() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        send = world.provider.checkout

        async def cancelled(context: Context, reference: str, **named: Any) -> PlacedOrder:
            placed = await send(context, reference, **named)
            world.platform.set_status(placed.number, "cancelled")
            return placed

        world.provider.checkout = cancelled  # type: ignore[method-assign]
        assert (await world.check_out()).order.number
        assert await world.shop.trust.doubt() == ""

    simulate(scenario)


def test_a_look_for_an_order_that_does_not_end_does_not_keep_its_user_waiting() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("find_order", FaultKind.DELAY, seconds=600)
        begun = world.platform.now()
        assert (await world.check_out()).order.number in world.live_orders
        assert world.platform.now() - begun < 5
        assert await world.shop.trust.doubt() == ""

    simulate(scenario)


def test_of_a_platform_that_names_another_order_those_that_carry_our_reference_are_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        send = world.provider.checkout

        async def misnamed(context: Context, reference: str, **named: Any) -> PlacedOrder:
            await send(context, reference, **named)
            return PlacedOrder("somebody-elses", "created", True)

        world.provider.checkout = misnamed  # type: ignore[method-assign]
        assert [(await world.check_out()).order.number] == world.live_orders
        assert "somebody-elses" in caplog.text

    simulate(scenario)


def test_an_order_that_is_listed_twice_is_one_order() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        find = world.provider.find_order

        async def twice(context: Context, reference: str, **named: Any) -> Any:
            found: Any = await find(context, reference, **named)
            return type(found)((*found.orders, PlacedOrder("cancelled-1", "cancelled", False), *found.orders))

        world.provider.find_order = twice  # type: ignore[method-assign]
        placed = await world.check_out()
        assert placed.order.others == ()
        cart = placed.order.cart_id
        context = Context("", "b")
        listed: Any = await world.shop.provider.find_order(context, f"{cart}-1", since=0)
        assert [order.number for order in listed.orders] == [placed.order.number, "cancelled-1"]
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_clock_that_is_set_ahead_ends_no_wait(monkeypatch: pytest.MonkeyPatch, is_atomic: bool) -> None:
    truly, ahead = Repository.now_ms, [0]
    monkeypatch.setattr(Repository, "now_ms", lambda self: truly(self) + ahead[0])

    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        for is_restarted in (False, True, False):
            outcome = await world.try_to_check_out(cart_id=cart.id)
            assert isinstance(outcome, CheckoutUnknown), repr(outcome)
            ahead[0] += 3_600_000
            if is_restarted:
                await world.kill()
            await asyncio.sleep(3)
        await asyncio.sleep(120)
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(20.0), is_atomic=is_atomic)


def test_an_old_order_is_not_the_answer_to_the_repeat_of_a_new_one_although_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truly, ahead = Repository.now_ms, [0]
    monkeypatch.setattr(Repository, "now_ms", lambda self: truly(self) + ahead[0])

    async def scenario(world: World) -> None:
        orders = []
        for _ in range(4):
            cart = await world.fill()
            orders.append((await world.check_out(cart_id=cart.id)).order.number)
            ahead[0] -= 3_600_000
            await asyncio.sleep(1)
            await world.shop.carts.get("ann")
            assert (await world.check_out()).order.number == orders[-1]
        listed, has_more = await world.shop.carts.orders("ann", limit=3)
        assert ([order.number for order in listed], has_more) == (orders[:0:-1], True)
        rest, has_more = await world.shop.carts.orders("ann", limit=3, after=listed[-1].id)
        assert ([order.number for order in rest], has_more) == (orders[:1], False)

    simulate(scenario)


def test_what_is_changed_between_the_read_back_and_the_order_is_not_ordered() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        send = world.provider.checkout

        async def changed(context: Context, reference: str, **named: Any) -> PlacedOrder:
            basket = world.platform.basket(context.basket_id)
            assert basket is not None
            [line, *_] = world.platform.lines(basket).values()
            world.platform.set_line(basket, type(line)(line.product_id, line.quantity + 2, line.price))
            world.provider.checkout = send  # type: ignore[method-assign]
            return await send(context, reference, **named)

        world.provider.checkout = changed  # type: ignore[method-assign]
        outcome = await world.try_to_check_out()
        assert isinstance(outcome, CheckoutFailed)
        assert outcome.retryable
        assert world.live_orders == []
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders
        assert world.platform.orders[0].subtotal == 549_00

    simulate(scenario, lookup=Lookup(None))


def test_an_order_in_another_currency_says_so_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        order = world.platform.order

        def dollars(basket_id: str, **named: Any) -> Any:
            basket = world.platform.basket(basket_id)
            assert basket is not None
            basket.currency = "USD"
            return order(basket_id, **named)

        world.platform.order = dollars  # type: ignore[method-assign]
        view = order_view((await world.check_out()).order)
        assert (view["platformSubtotal"], view["platformCurrency"]) == (549_00, "USD")
        assert view["totals"]["currency"] == "CAD"
        assert "at 54900 USD, not at 54900 CAD" in caplog.text

    simulate(scenario)


def test_a_basket_that_flickers_is_waited_for_from_when_it_was_last_there() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        is_there = world.provider.validate_context

        async def gone(context: Context) -> bool:
            return False

        world.provider.validate_context = gone  # type: ignore[method-assign]
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        await asyncio.sleep(25)
        world.provider.validate_context = is_there  # type: ignore[method-assign]
        close, closed_at = world.provider.close_cart, []

        async def closing(context: Context) -> Closed:
            closed_at.append(world.platform.now())
            return await close(context)

        world.provider.close_cart = closing  # type: ignore[method-assign]
        while isinstance(outcome := await world.try_to_check_out(cart_id=cart.id), CheckoutUnknown):  # noqa: ASYNC110
            await asyncio.sleep(1)
        assert isinstance(outcome, CheckoutFailed)
        assert world.platform.now() - closed_at[0] >= 30

    simulate(scenario, lookup=Lookup(20.0), is_atomic=False)
