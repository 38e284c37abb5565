"""Carts and what happens to them in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from telecom_cart.checks import MAX_ITEMS, MAX_QUANTITY
from telecom_cart.errors import (
    CartNotFound,
    CheckoutFailed,
    ItemNotFound,
    OperationTimeout,
    Outdated,
    ProviderDown,
    ValidationFailed,
)
from telecom_cart.model import Cart, Context, Hold, Item, SyncStatus
from telecom_cart.provider import Basket, Line
from telecom_cart.providers.faults import FaultKind
from telecom_cart.queues import Queues
from telecom_cart.settings import Settings
from tests.cart.simulated_shop import PHONE, PLAN, World, basket_of, seen, simulate, verbs, wanted

CASE = Item("case", "A case", "addon", 1, 10_00)
DAY = 86_400
HOUR = 3_600.0


# --- queues -------------------------------------------------------------------------------------------------


async def test_operations_of_a_user_take_turns_in_their_order_and_users_do_not_wait_for_each_other() -> None:
    queues, done = Queues(limit=10, seconds=5), list[str]()

    async def work(user: str, name: str) -> None:
        async with queues.turn(user):
            await asyncio.sleep(0.01)
            done.append(name)

    await asyncio.gather(work("ann", "a1"), work("ann", "a2"), work("bob", "b1"), work("ann", "a3"))
    assert [name for name in done if name.startswith("a")] == ["a1", "a2", "a3"]
    assert done.index("b1") < done.index("a2")
    assert len(queues) == 0


async def test_a_failed_operation_does_not_reject_those_behind_it() -> None:
    queues = Queues(limit=10, seconds=5)

    async def fail() -> None:
        async with queues.turn("ann"):
            await asyncio.sleep(0)
            raise ItemNotFound

    async def succeed() -> str:
        async with queues.turn("ann"):
            return "done"

    first, *others = await asyncio.gather(fail(), succeed(), succeed(), return_exceptions=True)
    assert isinstance(first, ItemNotFound)
    assert others == ["done", "done"]


async def test_a_queue_takes_so_many_and_makes_nobody_wait_longer_than_it_says() -> None:
    queues = Queues(limit=3, seconds=0.02)
    entered, ended = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with queues.turn("ann"):
            entered.set()
            await ended.wait()

    async def wait() -> None:
        async with queues.turn("ann"):
            pass

    holding = asyncio.create_task(hold())
    await entered.wait()
    waiting = [asyncio.create_task(wait()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OperationTimeout, match="More than 3"):
        await wait()
    for each in waiting:
        with pytest.raises(OperationTimeout):
            await each
    ended.set()
    await holding
    assert len(queues) == 0


# --- carts --------------------------------------------------------------------------------------------------


def test_a_product_that_is_in_the_cart_adds_up_with_the_newer_price() -> None:
    async def scenario(world: World) -> None:
        await world.shop.carts.add_item("ann", PHONE)
        cart = await world.shop.carts.add_item("ann", replace(PHONE, quantity=2, price=450_00))
        assert [(item.quantity, item.price) for item in cart.items] == [(3, 450_00)]

    simulate(scenario)


def test_limits_are_held_when_things_add_up() -> None:
    async def scenario(world: World) -> None:
        await world.shop.carts.add_item("ann", replace(PHONE, quantity=MAX_QUANTITY))
        with pytest.raises(ValidationFailed):
            await world.shop.carts.add_item("ann", PHONE)
        with pytest.raises(ValidationFailed):
            await world.shop.carts.add_item("ann", replace(PHONE, type="plan"))
        for number in range(MAX_ITEMS - 1):
            await world.shop.carts.add_item("ann", replace(CASE, product_id=f"case-{number}"))
        with pytest.raises(ValidationFailed):
            await world.shop.carts.add_item("ann", CASE)
        assert len((await world.cart()).items) == MAX_ITEMS

    simulate(scenario)


def test_a_change_of_what_somebody_else_changed_is_refused_and_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        old = await world.shop.carts.add_item("ann", PHONE)
        new = await world.shop.carts.add_item("ann", PLAN)
        for change in (
            world.shop.carts.add_item("ann", CASE, if_match=old.etag),
            world.shop.carts.set_quantity("ann", "phone", 7, if_match=old.etag),
            world.shop.carts.remove_item("ann", "phone", if_match=old.etag),
            world.shop.carts.set_province("ann", None, if_match=old.etag),
            world.shop.carts.delete("ann", if_match=old.etag),
        ):
            with pytest.raises(Outdated):
                await change
        assert (await world.cart()).items == new.items
        assert await world.shop.carts.remove_item("ann", "phone", if_match=(await world.cart()).etag)

    simulate(scenario)


def test_what_is_not_there_cannot_be_changed() -> None:
    async def scenario(world: World) -> None:
        for change in (world.shop.carts.set_quantity("ann", "phone", 1), world.shop.carts.delete("ann")):
            with pytest.raises(CartNotFound):
                await change
        await world.shop.carts.add_item("ann", PLAN)
        with pytest.raises(ItemNotFound):
            await world.shop.carts.remove_item("ann", "phone")

    simulate(scenario)


def test_reads_write_nothing_and_do_not_touch_the_platform() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        before, calls = await world.shop.repository.carts.get("ann"), len(world.platform.ledger)
        await asyncio.sleep(1)
        for _ in range(20):
            await world.shop.carts.get("ann")
            await world.shop.carts.peek("ann")
        assert await world.shop.repository.carts.get("ann") == before
        assert verbs(world, calls) == []

    simulate(scenario)


def test_when_a_cart_was_read_is_told_at_once_and_written_in_the_background() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        await asyncio.sleep(100)
        told = await world.shop.carts.get("ann")
        assert told.accessed_at > cart.accessed_at + 90_000
        assert (await world.cart()).accessed_at == cart.accessed_at
        await asyncio.sleep(world.settings.touch_seconds + 1)
        written = await world.cart()
        assert (written.accessed_at, written.etag) == (told.accessed_at, cart.etag)

    simulate(scenario)


# --- synchronisation ----------------------------------------------------------------------------------------


def test_the_platform_is_told_the_difference_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        calls = len(world.platform.ledger)
        await world.shop.carts.set_quantity("ann", "phone", 3)
        await world.shop.carts.add_item("ann", CASE)
        await world.shop.carts.remove_item("ann", "plan-10")
        await asyncio.sleep(2)
        assert sorted(verbs(world, calls)) == ["add_item", "add_item", "get_cart", "get_cart", "remove_item"]
        assert await seen(world) == wanted(await world.cart()) == {("phone", 3, 499_00), ("case", 1, 10_00)}

    simulate(scenario)


def test_a_new_price_is_told_although_the_quantity_is_the_same() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.shop.carts.add_item("ann", replace(PHONE, price=450_00))
        await world.shop.carts.set_quantity("ann", "phone", 1)
        await asyncio.sleep(2)
        assert ("phone", 1, 450_00) in await seen(world)

    simulate(scenario)


def test_an_expired_basket_is_made_anew_by_the_next_change() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        old = (await world.cart()).context
        world.platform.expire()
        await world.shop.carts.add_item("ann", CASE)
        await asyncio.sleep(2)
        assert (await world.cart()).context != old
        assert await seen(world) == wanted(await world.cart())
        assert len(world.platform.baskets) == 1

    simulate(scenario)


def test_a_basket_that_the_customer_has_already_is_used_whatever_is_in_it() -> None:
    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.QUOTA)
        cart = await world.fill()
        assert (await world.cart()).sync is SyncStatus.SYNCED
        assert await seen(world) == wanted(cart)
        assert len(world.platform.baskets) == 1

    simulate(scenario)


def test_another_price_at_the_platform_is_a_failed_synchronisation_and_tried_with_the_next_change() -> None:
    async def scenario(world: World) -> None:
        world.platform.prices["phone"] = 1
        await world.fill()
        cart = await world.cart()
        assert cart.sync is SyncStatus.FAILED
        assert "the price is 49900 in the cart, 1 at the platform" in cart.sync_error
        world.platform.prices.clear()
        await world.shop.carts.add_item("ann", CASE)
        await asyncio.sleep(2)
        cart = await world.cart()
        assert (cart.sync, cart.sync_error) == (SyncStatus.SYNCED, "")

    simulate(scenario)


def test_after_ten_minutes_without_the_platform_all_carts_are_synchronised_by_themselves() -> None:
    async def scenario(world: World) -> None:
        world.fault("*", FaultKind.DOWN, times=None)
        users = [f"user-{number}" for number in range(5)]
        for minute in range(10):
            for user in users:
                cart = await world.shop.carts.add_item(user, replace(CASE, product_id=f"case-{minute}"))
                assert len(cart.items) == minute + 1
            with pytest.raises(ProviderDown):
                await world.check_out(users[0])
            await asyncio.sleep(60)
        assert world.platform.baskets == {}
        world.provider.faults.clear()
        await asyncio.sleep(60)
        for user in users:
            cart = await world.cart(user)
            assert cart.sync is SyncStatus.SYNCED
            assert cart.context is not None
            basket = world.platform.basket(cart.context.basket_id)
            assert basket is not None
            assert len(basket.lines) == 10
        assert world.platform.orders == []

    simulate(scenario)


def test_a_change_at_the_platform_that_got_no_answer_cannot_reach_what_is_ordered() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.shop.carts.add_item("ann", CASE)
        world.fault("add_item", FaultKind.APPLY_LATER, seconds=4)
        await asyncio.sleep(0.3)  # the synchronisation has asked for the case, and got no answer
        await world.shop.carts.remove_item("ann", "case")
        world.fault("checkout", FaultKind.DELAY, seconds=8)
        placed = await world.check_out()
        [order] = world.platform.orders
        assert {line.product_id for line in order.lines} == {item.product_id for item in placed.order.items}

    simulate(scenario)


@pytest.mark.parametrize("verb", ["create_cart", "get_cart", "add_item"])
def test_a_cart_that_is_deleted_while_it_is_synchronised_leaves_no_basket(verb: str) -> None:
    async def scenario(world: World) -> None:
        if verb == "add_item":
            await world.fill()
        world.fault(verb, FaultKind.DELAY, seconds=3)
        await world.shop.carts.add_item("ann", CASE)
        await asyncio.sleep(1)
        await world.shop.carts.delete("ann")
        await asyncio.sleep(30)
        assert world.platform.baskets == {}

    simulate(scenario)


def test_a_cart_that_was_emptied_while_it_is_synchronised_is_synchronised_when_that_is_over() -> None:
    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.DELAY, seconds=5)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(1)
        await world.shop.carts.remove_item("ann", "phone")
        await asyncio.sleep(1)
        assert (await world.cart()).sync is SyncStatus.PENDING
        await asyncio.sleep(30)
        cart = await world.cart()
        assert (cart.sync, cart.syncing) == (SyncStatus.SYNCED, None)
        assert [basket.lines for basket in world.platform.baskets.values()] == [{}]

    simulate(scenario)


def test_nobody_holds_an_empty_cart_after_whoever_synchronised_it_has_died() -> None:
    async def scenario(world: World) -> None:
        world.fault("open_session", FaultKind.DELAY, seconds=3600)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(1)
        await world.shop.carts.remove_item("ann", "phone")
        await asyncio.sleep(300)
        cart = await world.cart()
        assert (cart.sync, cart.syncing, cart.context) == (SyncStatus.SYNCED, None, None)

    simulate(scenario)


def test_a_synchronisation_that_was_held_before_the_clock_went_back_is_not_waited_for_longer() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        now = world.shop.repository.now_ms()

        def held(cart: Cart | None) -> Cart:
            assert cart is not None
            return replace(cart, syncing=Hold("dead", now + 3_600_000)).with_items((PHONE,), now=now)

        await world.shop.repository.change("ann", held)
        await world.shop.synchroniser.run("ann")
        assert (await world.cart()).sync is SyncStatus.SYNCED

    simulate(scenario)


def test_a_checkout_that_does_not_wait_for_a_synchronisation_leaves_one_basket() -> None:
    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.DELAY, seconds=30)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(1)
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        with pytest.raises(CheckoutFailed):
            await world.check_out()
        await asyncio.sleep(60)
        cart = await world.cart()
        assert cart.context is not None
        assert set(world.platform.baskets) == {cart.context.basket_id}

    simulate(scenario)


def test_a_basket_that_a_synchronisation_makes_as_a_checkout_takes_over_is_closed() -> None:
    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.DELAY, seconds=3600)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(1)
        late = await world.provider.create_cart(await world.provider.open_session(), (), currency="CAD")
        repository, change = world.shop.repository, world.shop.repository.change
        is_made = False

        async def overtaken(user_id: str, decide: Callable[[Cart | None], Cart | None], **given: Any) -> Cart | None:
            nonlocal is_made
            cart = await repository.cart(user_id)
            if cart is not None and cart.is_sealed and cart.syncing is not None and not is_made:
                is_made = True  # it wakes up, and writes down what it has made
                place = replace(late, place=world.provider.place)
                await change(user_id, lambda held: None if held is None else replace(held, context=place))
            return await change(user_id, decide, **given)

        repository.change = overtaken  # type: ignore[method-assign]
        await world.check_out()
        await asyncio.sleep(30)
        assert is_made
        assert late.basket_id not in world.platform.baskets

    simulate(scenario)


def test_so_many_carts_are_synchronised_at_once_and_a_checkout_does_not_wait_for_them() -> None:
    async def scenario(world: World) -> None:
        world.provider.latency_seconds = 1.0
        now, most, read = 0, 0, world.provider.get_cart

        async def counted(context: Context) -> Basket:
            nonlocal now, most
            now += 1
            most = max(most, now)
            try:
                return await read(context)
            finally:
                now -= 1

        world.provider.get_cart = counted  # type: ignore[method-assign]
        users = [f"user-{number}" for number in range(40)]
        for user in users:
            await world.shop.carts.add_item(user, PHONE)
        await asyncio.sleep(1)
        assert (await world.check_out(users[-1])).order
        await asyncio.sleep(120)
        assert most <= 5  # four synchronisations, and the checkout
        for user in users[:-1]:
            assert (await world.cart(user)).sync is SyncStatus.SYNCED

    simulate(scenario, settings=Settings(sync_at_once=4, attempt_seconds=60))


# --- clean-up -----------------------------------------------------------------------------------------------


def test_what_is_told_to_the_platform_first_is_not_what_it_is_told_last() -> None:
    """Changes during a synchronisation are told by it, or by the next one."""

    async def scenario(world: World) -> None:
        world.fault("create_cart", FaultKind.DELAY, seconds=5)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(1)
        cart = await world.shop.carts.add_item("ann", PLAN)
        await asyncio.sleep(20)
        assert await seen(world) == wanted(cart)
        assert (await world.cart()).sync is SyncStatus.SYNCED

    simulate(scenario, settings=Settings(sync_delay_seconds=0.1))


def test_a_line_is_what_the_platform_says_it_is() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        basket = await basket_of(world)
        assert basket is not None
        world.platform.set_line(basket, Line("stray", 1, 1))
        await world.shop.carts.add_item("ann", CASE)
        await asyncio.sleep(2)
        assert await seen(world) == wanted(await world.cart())

    simulate(scenario)


def test_an_outage_is_a_line_for_each_try_and_no_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("*", FaultKind.DOWN, times=None)
        await world.shop.carts.add_item("ann", CASE)
        await asyncio.sleep(20)
        assert (await world.cart()).sync is SyncStatus.PENDING
        world.provider.faults.clear()
        await asyncio.sleep(40)
        assert (await world.cart()).sync is SyncStatus.SYNCED

    simulate(scenario)
    told = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert told
    assert {(record.levelname, record.exc_info) for record in told} == {("WARNING", None)}
    assert "the cart of ann is not synchronised, and tried again: The platform is down" in told[0].getMessage()
