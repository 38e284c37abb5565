"""What is no longer needed is removed, and what somebody forgot is found: the sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from telecom_cart.errors import (
    CheckoutFailed,
)
from telecom_cart.model import Cart, Hold, Item, SyncStatus
from telecom_cart.providers.faults import FaultKind
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop
from tests.cart.simulated_shop import PHONE, World, seen, simulate, verbs, wanted

CASE = Item("case", "A case", "addon", 1, 10_00)
DAY = 86_400
HOUR = 3_600.0


async def grow_old(world: World, seconds: float) -> None:
    """As if nobody had touched the cart for so long."""
    at = world.shop.repository.now_ms() - round(seconds * 1000)

    def untouched(cart: Cart | None) -> Cart:
        assert cart is not None
        return replace(cart, accessed_at=at)

    await world.shop.repository.change("ann", untouched)


async def forget_timers(world: World, prefix: str) -> None:
    for timer in [timer async for timer in world.ms.timers.iterate(namespace="cart")]:
        if timer.timer_id.startswith(prefix):
            await world.ms.timers.delete(timer.timer_id, namespace="cart")


def test_a_cart_that_nobody_touched_for_so_long_is_removed_with_its_basket() -> None:
    async def scenario(world: World) -> None:
        world.platform.life_seconds = 30 * DAY
        await world.fill()
        await world.fill("bob")
        await asyncio.sleep(HOUR - 600)
        assert await world.shop.carts.get("bob")
        await asyncio.sleep(1_200)
        assert await world.shop.repository.cart("ann") is None
        assert await world.shop.repository.cart("bob") is not None
        assert len(world.platform.baskets) == 1

    simulate(scenario, settings=Settings(inactive_seconds=HOUR))


def test_a_cart_that_was_read_at_another_instance_a_moment_ago_is_not_removed() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        other = Shop(world.ms, world.provider, world.settings, is_only=False)
        await grow_old(world, world.settings.inactive_seconds - 0.5)
        await other.carts.get("ann")  # which is not written yet
        for _ in range(60):
            await asyncio.sleep(1)
            await world.shop.cleaner.sweep()
        assert (await world.cart()).items

    simulate(scenario)


def test_a_cart_that_was_read_here_a_moment_ago_is_not_removed_however_old_it_was() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await grow_old(world, world.settings.inactive_seconds + 3600)
        await world.shop.carts.get("ann")
        await world.shop.cleaner.sweep()
        assert (await world.cart()).items

    simulate(scenario)


def test_a_cart_whose_checkout_failed_is_removed_after_an_hour() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.FAILED_ORDER_400)
        with pytest.raises(CheckoutFailed):
            await world.check_out()
        await asyncio.sleep(3_000)
        assert await world.shop.repository.cart("ann") is not None
        await asyncio.sleep(1_200)
        assert await world.shop.repository.cart("ann") is None
        assert world.platform.baskets == {}

    simulate(scenario)


def test_a_cart_that_was_ordered_and_not_removed_is_removed_and_the_order_stays() -> None:
    async def scenario(world: World) -> None:
        cart = await world.fill()
        placed = await world.check_out()
        left = replace(cart, order_id=placed.order.id)
        await world.shop.repository.carts.put("ann", left, expect=0)
        await asyncio.sleep(400)
        assert await world.shop.repository.cart("ann") is None
        assert (await world.check_out(cart_id=cart.id)).order == placed.order

    simulate(scenario)


def test_an_attempt_whose_timer_was_lost_is_found_by_the_sweep() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("set_reference", FaultKind.DELAY, seconds=30)
        asking = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        await world.kill()
        asking.cancel()
        await forget_timers(world, "recover-")
        await asyncio.sleep(70)
        assert (await world.cart()).is_sealed
        await asyncio.sleep(600)
        assert not (await world.cart()).is_sealed

    simulate(scenario)


@pytest.mark.parametrize("hold", [None, Hold("somebody who died", 1)])
def test_a_synchronisation_whose_timer_was_lost_is_found_by_the_sweep(hold: Hold | None) -> None:
    async def scenario(world: World) -> None:
        await world.shop.carts.add_item("ann", PHONE)
        await forget_timers(world, "sync-")
        await world.shop.repository.change("ann", lambda cart: cart and replace(cart, syncing=hold))
        await asyncio.sleep(200)
        assert (await world.cart()).sync is SyncStatus.PENDING
        await asyncio.sleep(700)
        assert (await world.cart()).sync is SyncStatus.SYNCED

    simulate(scenario)


def test_a_basket_that_was_idle_is_validated_and_made_anew_when_it_has_expired() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        calls = len(world.platform.ledger)
        await asyncio.sleep(800)
        assert verbs(world, calls) == []
        await asyncio.sleep(400)
        assert "validate_context" in verbs(world, calls)
        assert (await world.cart()).sync is SyncStatus.SYNCED
        old = set(world.platform.baskets)
        await asyncio.sleep(1_500)
        cart = await world.cart()
        assert (cart.sync, cart.sync_error) == (SyncStatus.SYNCED, "")
        assert not old & set(world.platform.baskets)
        assert await seen(world) == wanted(cart)
        assert (await world.check_out()).order.items == cart.items

    simulate(scenario)


def test_a_cart_that_was_read_while_the_sweep_looked_at_it_is_kept() -> None:
    async def scenario(world: World) -> None:
        stale = await world.fill()
        now = world.shop.repository.now_ms()
        await world.shop.repository.change("ann", lambda cart: cart and replace(cart, accessed_at=now + 1))
        assert await world.shop.cleaner._removed(stale) == "kept"

    simulate(scenario)


def test_a_basket_that_was_made_while_the_sweep_looked_at_its_cart_is_closed_with_it() -> None:
    async def scenario(world: World) -> None:
        stale = await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(2)
        assert await world.shop.cleaner._removed(stale) == "removed"
        await asyncio.sleep(2)
        assert world.platform.baskets == {}

    simulate(scenario)


def test_one_cart_that_cannot_be_cleaned_up_does_not_stop_the_others() -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        await world.fill("bob")
        look: Callable[..., object] = world.shop.cleaner._look

        async def failing(cart: Cart) -> str:
            if cart.user_id == "ann":
                raise RuntimeError("a bug")
            return str(await look(cart))  # type: ignore[misc]

        world.shop.cleaner._look = failing  # type: ignore[method-assign]
        assert await world.shop.cleaner.sweep() == {"failed": 1, "kept": 1}

    simulate(scenario)
