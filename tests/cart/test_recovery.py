"""What becomes of a checkout of which nobody knows: it is found, fenced and ended, or left to a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import (
    CheckoutFailed,
    CheckoutInProgress,
    CheckoutUnknown,
)
from telecom_cart.model import AttemptOutcome, CheckoutStatus, Context
from telecom_cart.provider import Absent, Found, Lookup, PlacedOrder, Unsure
from telecom_cart.providers.faults import FaultKind
from tests.cart.simulated_shop import PHONE, World, simulate

HIDDEN = [FaultKind.APPLY_THEN_DROP, FaultKind.APPLY_THEN_5XX]


def test_an_order_is_looked_for_by_the_clock_of_the_platform_whatever_ours_says() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.platform.clock = lambda: asyncio.get_running_loop().time() - 86_400
        find, asked = world.provider.find_order, []

        async def noted(context: Context, reference: str, *, since: int, ticket: str = "") -> Found | Absent | Unsure:
            asked.append(since)
            return await find(context, reference, since=since, ticket=ticket)

        world.provider.find_order = noted  # type: ignore[method-assign]
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        before = world.platform.now() * 1000
        assert (await world.check_out()).order.number
        [made] = world.platform.orders
        assert before <= asked[0] <= made.made_at * 1000

    simulate(scenario)


@pytest.mark.parametrize("kind", HIDDEN)
def test_an_order_whose_answer_was_lost_is_found_and_not_made_again(kind: FaultKind) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", kind)
        placed = await world.check_out()
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


def test_an_order_that_is_made_late_meets_a_basket_that_is_closed() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.APPLY_LATER, seconds=30)
        with pytest.raises(CheckoutFailed):
            await world.check_out()
        assert (await world.cart()).checkout_status is CheckoutStatus.FAILED
        await asyncio.sleep(60)
        assert world.live_orders == []
        assert (await world.check_out()).order.reference.endswith("-2")
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_nobody_knows_while_the_platform_cannot_be_asked_and_then_it_is_found() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DOWN, times=None)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        with pytest.raises(CheckoutUnknown):
            await world.check_out(cart_id=cart.id)
        assert (await world.cart()).checkout_status is CheckoutStatus.UNKNOWN
        with pytest.raises(CheckoutInProgress):
            await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(600)
        world.provider.faults.clear()
        await asyncio.sleep(400)
        placed = await world.check_out(cart_id=cart.id)
        assert placed.is_replay
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


@pytest.mark.parametrize(("seconds", "turns"), [(5, [0, 5]), (33, [0, 5, 10, 20])])
def test_what_is_unknown_is_asked_again_after_five_seconds_doubling_and_by_a_repeat_at_once(
    seconds: float, turns: list[int]
) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        asked: list[int] = []
        find = world.provider.find_order

        async def counted(context: Context, reference: str, **named: Any) -> Found | Absent | Unsure:
            asked.append(round(world.platform.now() - begun))
            return await find(context, reference, **named)

        world.provider.find_order = counted  # type: ignore[method-assign]
        world.fault("find_order", FaultKind.DOWN, times=None)
        begun = world.platform.now()
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(seconds + 1)
        assert len(asked) == len(turns)
        assert all(at <= turn * 1.5 for at, turn in zip(asked, turns, strict=True))
        world.provider.faults.clear()
        since = world.platform.now()
        assert (await world.check_out(cart_id=cart.id)).is_replay
        assert world.platform.now() - since < 1
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_with_a_look_up_that_lags_an_absent_order_is_not_believed_too_early() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(200)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(30.0))


def test_without_a_bound_of_the_lag_a_person_decides() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 10**9
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(3_600)
        assert "a person has to decide" in str((await world.cart()).attempt)
        await world.shop.settlement.settle("ann", order_number=world.live_orders[0])
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(None))


def test_a_cart_that_a_person_found_unordered_is_open_again_when_its_basket_is_closed() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_LATER, seconds=400)
        for verb in ("find_order", "close_cart", "validate_context"):
            world.fault(verb, FaultKind.FAIL_BEFORE, times=10**6)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await world.shop.settlement.settle("ann", order_number=None)
        await asyncio.sleep(60)
        with pytest.raises(CheckoutUnknown):  # whoever was held up could still order the basket
            await world.check_out(cart_id=cart.id)
        world.provider.faults.clear()
        await asyncio.sleep(400)  # the late order finds its basket closed
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


def test_an_order_that_is_there_after_all_stands_against_what_a_person_found() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.FAIL_BEFORE)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await world.shop.settlement.settle("ann", order_number=None)
        await asyncio.sleep(600)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


def test_a_refusal_is_not_believed_while_the_platform_cannot_be_asked() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        world.fault("find_order", FaultKind.FAIL_BEFORE, times=2)
        with pytest.raises(CheckoutUnknown):
            await world.check_out()
        await asyncio.sleep(60)
        placed = await world.check_out(cart_id=cart.id)
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


def test_an_attempt_that_was_interrupted_before_it_was_sent_is_over_after_its_time() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("set_reference", FaultKind.DELAY, seconds=30)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        await world.kill()
        asking.cancel()
        with pytest.raises(CheckoutInProgress):
            await world.check_out()
        await asyncio.sleep(70)
        cart = await world.cart()
        assert cart.attempt is not None
        assert cart.attempt.closing is AttemptOutcome.NOT_MADE
        assert (await world.check_out()).order
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_one_that_was_frozen_before_it_sent_finds_its_basket_closed() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=300)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(120)  # the recovery has fenced it
        assert (await world.cart()).checkout_status is CheckoutStatus.FAILED
        placed = await world.check_out()
        await asyncio.sleep(400)
        await asking
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


@pytest.mark.parametrize("moment", [0.005, 0.02, 0.05, 0.08, 0.11, 0.14])
@pytest.mark.parametrize("kind", [None, *HIDDEN, FaultKind.APPLY_LATER])
def test_killed_at_any_moment_it_orders_once_and_nothing_is_stuck(moment: float, kind: FaultKind | None) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        if kind is not None:
            world.fault("checkout", kind, seconds=20)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(moment)
        await world.kill()
        asking.cancel()
        await asyncio.sleep(300)
        placed = await world.try_to_check_out(cart_id=cart.id)
        if isinstance(placed, CheckoutFailed):  # the fault had not been met before
            placed = await world.check_out(cart_id=cart.id)
        await asyncio.sleep(300)
        assert isinstance(placed, Placed)
        assert [placed.order.number] == world.live_orders
        assert world.platform.baskets == {}

    simulate(scenario)


def test_an_order_that_was_sent_late_is_waited_for_as_long_as_the_look_up_lags() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.lookup_lag_seconds = 20
        send = world.provider.checkout

        async def frozen(context: Context, reference: str, **named: Any) -> PlacedOrder:
            await asyncio.sleep(55)
            await send(context, reference, **named)
            await asyncio.sleep(10**6)
            raise AssertionError

        world.provider.checkout = frozen  # type: ignore[method-assign]
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(300)
        await asking
        world.provider.checkout = send  # type: ignore[method-assign]
        placed = await world.check_out(cart_id=cart.id)
        assert placed.is_replay
        assert [placed.order.number] == world.live_orders

    simulate(scenario, lookup=Lookup(30.0))


def test_an_order_that_is_made_between_two_questions_is_found() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        send, validate = world.provider.checkout, world.provider.validate_context
        asked = asyncio.Event()

        async def frozen(context: Context, reference: str, **named: Any) -> PlacedOrder:
            await asked.wait()
            await send(context, reference, **named)
            await asyncio.sleep(10**6)
            raise AssertionError

        async def after_it(context: Context) -> bool:
            asked.set()
            await asyncio.sleep(1)
            return await validate(context)

        world.provider.checkout = frozen  # type: ignore[method-assign]
        world.provider.validate_context = after_it  # type: ignore[method-assign]
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(300)
        await asking
        world.provider.checkout = send  # type: ignore[method-assign]
        assert [(await world.check_out(cart_id=cart.id)).order.number] == world.live_orders

    simulate(scenario)


def test_an_old_attempt_that_wakes_up_does_not_take_the_timer_of_the_new_one() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=100)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(80)  # it has been recovered
        world.fault("set_reference", FaultKind.DELAY, seconds=30)
        again = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(25)  # the first one woke up
        await world.kill()
        for task in (asking, again):
            task.cancel()
        await asyncio.sleep(45)
        assert not (await world.cart()).is_sealed

    simulate(scenario)
