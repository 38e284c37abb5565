"""A checkout orders once, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from telecom_cart.api.views import order_view
from telecom_cart.checkout import Placed, Wish
from telecom_cart.errors import (
    AmbiguousCheckout,
    CartNotFound,
    CheckoutFailed,
    CheckoutInProgress,
    EmptyCart,
    Outdated,
    ProviderDown,
    ValidationFailed,
)
from telecom_cart.model import Cart, CheckoutStatus, Item, SyncStatus
from telecom_cart.providers.faults import FaultKind
from telecom_cart.providers.platform import StoredOrder
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop
from tests.cart.simulated_shop import PHONE, World, simulate

T = TypeVar("T")


def test_a_checkout_orders_what_is_in_the_cart() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        placed = await world.check_out()
        [order] = world.platform.orders
        assert (placed.order.number, placed.is_replay) == (order.number, False)
        assert {(line.product_id, line.quantity, line.price) for line in order.lines} == {
            (item.product_id, item.quantity, item.price) for item in cart.items
        }
        assert placed.order.reference == order.reference == f"{cart.id}-1"
        assert await world.shop.repository.cart("ann") is None
        assert await world.shop.carts.order(placed.order.id) == placed.order
        assert (await world.shop.carts.get("ann")).id != cart.id

    simulate(scenario)


def test_a_repeat_gets_the_same_order_also_after_clean_up_and_a_restart() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        first = await world.check_out(key="k")
        for wish in ({}, {"key": "k"}, {"cart_id": cart.id}, {"if_match": cart.etag}):
            again = await world.check_out(**wish)
            assert again == Placed(first.order, is_replay=True)
        await world.kill()
        assert (await world.check_out()).order == first.order
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_ten_clicks_at_once_are_one_order() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        placed = await asyncio.gather(*(world.check_out() for _ in range(10)))
        assert len({each.order for each in placed}) == 1
        assert sum(not each.is_replay for each in placed) == 1
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_a_late_duplicate_after_a_new_cart_was_begun_is_the_old_order_or_asked_which() -> None:
    async def scenario(world: World) -> None:
        old = await world.fill()
        first = await world.check_out(key="k")
        new = await world.fill()
        assert (await world.check_out(key="k")).order == first.order
        assert (await world.check_out(cart_id=old.id)).order == first.order
        with pytest.raises(AmbiguousCheckout):
            await world.check_out()
        second = await world.check_out(cart_id=new.id)
        assert second.order.id != first.order.id
        await world.fill()
        await asyncio.sleep(700)
        assert not (await world.check_out()).is_replay  # nobody repeats so late
        assert len(world.live_orders) == 3

    simulate(scenario)


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_order_at_another_price_than_was_read_back_says_so_and_is_told(
    caplog: pytest.LogCaptureFixture, is_lost: bool
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        order = world.platform.order

        def dearer(basket_id: str, **given: str) -> StoredOrder | None:
            with world.platform.drifted():
                return order(basket_id, **given)

        world.platform.order = dearer  # type: ignore[method-assign]
        if is_lost:
            world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        placed = await world.check_out()
        [theirs] = world.platform.orders
        assert placed.order.totals.subtotal == 549_00
        assert placed.order.platform_subtotal == theirs.subtotal == 549_00 + 3
        assert any(theirs.number in record.message and "54903" in record.message for record in caplog.records)
        assert order_view(placed.order)["platformSubtotal"] == 549_03

    simulate(scenario)


def test_a_bare_checkout_of_a_cart_whose_order_is_on_record_gets_it_before_the_attempt_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()

        async def dies(*given: object) -> None:
            await asyncio.sleep(3600)

        monkeypatch.setattr(world.shop.checkouts._closer, "_close", dies)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        await world.kill()
        asking.cancel()
        assert (await world.cart()).is_sealed
        again = await world.check_out()
        assert again.is_replay
        assert world.live_orders == [again.order.number]

    simulate(scenario)


def test_a_checkout_whose_change_was_not_answered_orders_another_basket() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        [tainted] = world.platform.baskets
        world.fault("set_reference", FaultKind.APPLY_LATER, seconds=0.1)
        world.fault("checkout", FaultKind.DELAY, seconds=3)
        placed = await world.check_out()
        [order] = world.platform.orders
        assert (order.reference, order.number) == (placed.order.reference, placed.order.number)
        assert order.basket_id != tainted
        assert world.platform.baskets == {}

    simulate(scenario)


def test_a_basket_of_which_a_change_was_not_answered_and_that_cannot_be_closed_is_not_ordered() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("set_reference", FaultKind.APPLY_LATER, seconds=0.1)
        world.fault("close_cart", FaultKind.FAIL_BEFORE, times=2)
        with pytest.raises(ProviderDown):
            await world.check_out()
        assert world.platform.orders == []
        await asyncio.sleep(60)
        cart = await world.cart()
        assert cart.sync is SyncStatus.SYNCED
        assert cart.context is not None
        assert list(world.platform.baskets) == [cart.context.basket_id]
        await world.check_out()

    simulate(scenario)


@pytest.mark.parametrize("is_synchronising", [True, False])
def test_a_checkout_is_answered_in_time_although_the_clock_of_the_store_goes_back(
    monkeypatch: pytest.MonkeyPatch, is_synchronising: bool
) -> None:
    async def scenario(world: World) -> None:
        if is_synchronising:
            world.fault("create_cart", FaultKind.DELAY, seconds=3600)
            await world.shop.carts.add_item("ann", PHONE)
            await asyncio.sleep(1)
        else:
            await world.fill()
            world.fault("checkout", FaultKind.DELAY, seconds=3600)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(1)
        other = Shop(world.ms, world.provider, world.settings, is_only=False)
        joining = asyncio.create_task(other.checkouts.run("ann", Wish()))
        await asyncio.sleep(1)
        now_ms = other.repository.now_ms
        for shop in (world.shop, other):
            monkeypatch.setattr(shop.repository, "now_ms", lambda: now_ms() - 3_600_000)
        async with asyncio.timeout(20):
            if is_synchronising:
                assert isinstance(await asking, Placed)
                assert (await joining).is_replay
            else:
                with pytest.raises(CheckoutInProgress):
                    await joining

    simulate(scenario)


def test_a_key_stands_for_one_cart() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.check_out(key="k")
        new = await world.fill()
        with pytest.raises(ValidationFailed):
            await world.check_out(key="k", cart_id=new.id)

    simulate(scenario)


def test_what_cannot_be_ordered_is_refused_for_its_reason() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(CartNotFound):
            await world.check_out()
        empty = await world.shop.carts.get("ann")
        with pytest.raises(EmptyCart):
            await world.check_out()
        with pytest.raises(CartNotFound, match="has no such cart"):
            await world.check_out(cart_id="0" * 20)
        cart = await world.fill()
        with pytest.raises(Outdated):
            await world.check_out(if_match=empty.etag)
        assert (await world.check_out(if_match=cart.etag)).order

    simulate(scenario)


def test_a_bare_checkout_beside_that_of_the_next_cart_is_asked_which_is_meant() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.check_out()
        second = await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=3)
        ordering = asyncio.create_task(world.check_out(cart_id=second.id))
        await asyncio.sleep(1)
        with pytest.raises(AmbiguousCheckout):
            await world.check_out()
        assert (await ordering).order.number == world.live_orders[-1]

    simulate(scenario)


def test_a_refusal_is_told_with_its_reasons_and_may_be_tried_again() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        with pytest.raises(CheckoutFailed, match="stored as failed"):
            await world.check_out(key="k")
        cart = await world.cart()
        assert (cart.checkout_status, cart.is_sealed) == (CheckoutStatus.FAILED, False)
        again = await world.check_out(key="k")  # the failure is not what the key stands for
        assert [again.order.number] == world.live_orders

    simulate(scenario)


def test_another_price_at_the_platform_is_not_ordered() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.platform.price_drift = 100
        await world.shop.carts.set_quantity("ann", "phone", 2)
        with pytest.raises(CheckoutFailed, match="the price is 49900 in the cart, 50000 at the platform"):
            await world.check_out()
        assert world.platform.orders == []
        world.platform.price_drift = 0
        assert (await world.check_out()).order

    simulate(scenario)


def test_an_expired_basket_is_made_anew_with_everything_in_it() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.platform.expire()
        assert world.platform.basket((await world.cart()).context.basket_id) is None  # type: ignore[union-attr]
        placed = await world.check_out()
        assert placed.order.items == cart.items
        assert world.platform.orders[0].subtotal == placed.order.totals.subtotal

    simulate(scenario)


@pytest.mark.parametrize("verb", ["set_reference", "get_cart"])
def test_a_basket_that_expires_while_it_is_prepared_is_made_anew(verb: str) -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        ask, times = getattr(world.provider, verb), 0

        async def expiring(*given: Any) -> Any:
            nonlocal times
            times += 1
            if times == 2 or (verb == "set_reference" and times == 1):
                world.platform.expire()
            return await ask(*given)

        setattr(world.provider, verb, expiring)
        placed = await world.check_out()
        assert placed.order.items == cart.items
        assert [placed.order.number] == world.live_orders

    simulate(scenario)


def test_with_the_platform_down_a_checkout_says_so_and_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("*", FaultKind.DOWN, times=None)
        with pytest.raises(ProviderDown, match="the cart is kept"):
            await world.check_out()
        for _ in range(10):
            await asyncio.sleep(60)
            await world.shop.carts.add_item("ann", replace(PHONE, product_id="case", type="addon"))
        assert (await world.cart()).sync is SyncStatus.PENDING
        world.provider.faults.clear()
        await asyncio.sleep(60)
        present = await world.cart()
        assert (present.id, present.sync, len(present.items)) == (cart.id, SyncStatus.SYNCED, 3)
        assert (await world.check_out()).order

    simulate(scenario)


def test_a_change_during_a_checkout_is_refused_and_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=5)
        asking = asyncio.create_task(world.check_out())
        await asyncio.sleep(1)
        for change in (
            world.shop.carts.add_item("ann", PHONE),
            world.shop.carts.set_quantity("ann", "phone", 9),
            world.shop.carts.remove_item("ann", "phone"),
            world.shop.carts.delete("ann"),
        ):
            with pytest.raises(CheckoutInProgress):
                await change
        placed = await asking
        assert [item.quantity for item in placed.order.items] == [1, 2]

    simulate(scenario)


def test_a_request_waits_for_so_long_and_the_checkout_goes_on_without_it() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=30)
        with pytest.raises(CheckoutInProgress):
            await world.check_out()
        await asyncio.sleep(30)
        assert (await world.check_out(cart_id=cart.id)).is_replay

    simulate(scenario)


def test_a_synchronisation_under_way_cannot_change_what_is_ordered() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.shop.carts.add_item("ann", Item("case", "A case", "addon", 1, 10_00))
        world.fault("add_item", FaultKind.APPLY_LATER, seconds=8)
        await asyncio.sleep(0.25)  # the synchronisation has asked for the case
        await world.shop.carts.remove_item("ann", "case")
        placed = await world.check_out()
        await asyncio.sleep(60)
        [order] = world.platform.orders
        assert {line.product_id for line in order.lines} == {item.product_id for item in placed.order.items}

    simulate(scenario, settings=Settings(sync_hold_seconds=20))


def test_two_instances_that_order_one_cart_at_once_order_it_once() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        first = world.shop
        other = Shop(world.ms, world.provider, world.settings, is_only=False)
        placed = await asyncio.gather(*(shop.checkouts.run("ann", Wish()) for shop in (first, other, first, other)))
        assert len({each.order for each in placed}) == 1
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_one_instance_that_is_overtaken_by_another_joins_its_checkout() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        other = Shop(world.ms, world.provider, world.settings, is_only=False)
        seal = other.checkouts._seal

        async def late(cart: Cart) -> object:
            await asyncio.sleep(0.02)
            return await seal(cart)

        other.checkouts._seal = late  # type: ignore[assignment, method-assign]
        second, first = await asyncio.gather(other.checkouts.run("ann", Wish()), world.check_out())
        assert (second.order, second.is_replay) == (first.order, True)

    simulate(scenario)


def test_an_attempt_that_never_touched_the_basket_leaves_it_to_the_cart() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.shop.carts.set_quantity("ann", "phone", 2)
        world.fault("add_item", FaultKind.DELAY, seconds=30)
        await asyncio.sleep(0.5)
        asking = asyncio.create_task(world.try_to_check_out())  # waits for the synchronisation
        await asyncio.sleep(1)
        await world.kill()
        asking.cancel()
        await asyncio.sleep(200)
        context = (await world.cart()).context
        assert context is not None
        assert set(world.platform.baskets) == {context.basket_id}

    simulate(scenario)


def test_who_asks_at_the_moment_at_which_the_order_is_recorded_is_not_told_that_nothing_was_ordered() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        placed = await world.check_out()
        repository, reads = world.shop.repository, 0

        def from_the_second_read(read: Callable[[str], Awaitable[T]]) -> Callable[[str], Awaitable[T | None]]:
            async def reading(key: str) -> T | None:
                nonlocal reads
                reads += 1
                return None if reads == 1 else await read(key)

            return reading

        repository.order_of = from_the_second_read(repository.order_of)  # type: ignore[assignment, method-assign]
        repository.attempts.get = from_the_second_read(repository.attempts.get)  # type: ignore[assignment, method-assign]
        told = await world.shop.checkouts._verdict(cart, placed.order.reference, is_replay=True)
        assert told.order == placed.order

    simulate(scenario)
