"""A change is told to the platform by a timer: one, and never none, whatever comes between."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from mainspring.records import Document
from telecom_cart.errors import ProviderDown
from telecom_cart.model import Cart, Item, SyncStatus
from telecom_cart.providers.faults import FaultKind
from telecom_cart.settings import Settings
from tests.cart.simulated_shop import PHONE, PLAN, World, simulate

CASE = Item("case", "A case", "addon", 1, 10_00)


async def told(world: World) -> bool:
    """Whether the platform has what the cart has."""
    cart = await world.cart()
    if cart.sync is not SyncStatus.SYNCED or cart.context is None:
        return False
    basket = world.platform.basket(cart.context.basket_id)
    return basket is not None and {line.product_id for line in world.platform.lines(basket).values()} == {
        item.product_id for item in cart.items
    }


def count_timers(world: World) -> list[str]:
    """The ids of timers, as they are made from now on."""
    made, create = list[str](), world.ms.timers.create

    async def counted(timer_id: str, **fields: Any) -> Any:
        made.append(timer_id)
        return await create(timer_id, **fields)

    world.ms.timers.create = counted  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("after", [0, 1], ids=["before the synchronisation", "during the synchronisation"])
def test_a_change_of_a_cart_that_is_pending_makes_no_other_timer(after: float) -> None:
    async def scenario(world: World) -> None:
        made = count_timers(world)
        world.fault("create_cart", FaultKind.DELAY, seconds=4)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(after)
        for item in (PLAN, CASE):
            await world.shop.carts.add_item("ann", item)
        assert len(made) == 1
        await asyncio.sleep(10)
        assert await told(world)
        assert len(made) == 1

    simulate(scenario)


def test_a_change_makes_one_read_and_one_write() -> None:
    async def scenario(world: World) -> None:
        await world.shop.carts.add_item("ann", PHONE)
        asked, carts = list[str](), world.shop.repository.carts
        get, put = carts.get, carts.put

        async def read(key: str) -> Document[Cart] | None:
            asked.append("get")
            return await get(key)

        async def written(key: str, value: Cart, **fields: Any) -> Document[Cart]:
            asked.append("put")
            return await put(key, value, **fields)

        carts.get, carts.put = read, written  # type: ignore[method-assign]
        await world.shop.carts.add_item("ann", PLAN)
        assert asked == ["get", "put"]

    simulate(scenario)


def test_a_change_that_comes_as_a_synchronisation_ends_is_told() -> None:
    """It sees a cart that is pending, and writes one that no longer is."""

    async def scenario(world: World) -> None:
        await world.shop.carts.add_item("ann", PHONE)
        carts, get = world.shop.repository.carts, world.shop.repository.carts.get

        async def late(key: str) -> Document[Cart] | None:
            found = await get(key)
            carts.get = get  # type: ignore[method-assign]
            await asyncio.sleep(3)
            return found

        carts.get = late  # type: ignore[method-assign]
        cart = await world.shop.carts.add_item("ann", PLAN)
        assert cart.sync is SyncStatus.PENDING
        await asyncio.sleep(10)
        assert await told(world)

    simulate(scenario)


def test_carts_that_change_together_are_told_one_after_the_other() -> None:
    """The platform's answers would come together, too, and whoever shops would wait for what they take."""

    async def scenario(world: World) -> None:
        begun, open_session = list[float](), world.provider.open_session

        async def noted() -> str:
            begun.append(asyncio.get_running_loop().time())
            return await open_session()

        world.provider.open_session = noted  # type: ignore[method-assign]
        users = [f"user-{number}" for number in range(10)]
        await asyncio.gather(*(world.shop.carts.add_item(user, PHONE) for user in users))
        await asyncio.sleep(5)
        assert len(begun) == len(users)
        assert all(later - earlier >= 0.0199 for earlier, later in pairwise(begun))

    simulate(scenario, settings=Settings(sync_pause_seconds=0.02))


def slow_writes(world: World) -> None:
    """The store takes a second for the next write of a cart."""
    carts, put = world.shop.repository.carts, world.shop.repository.carts.put

    async def slow(key: str, value: Cart, **fields: Any) -> Document[Cart]:
        carts.put = put  # type: ignore[method-assign]
        await asyncio.sleep(1)
        return await put(key, value, **fields)

    carts.put = slow  # type: ignore[method-assign]


def test_a_change_that_is_written_after_its_timer_fired_is_told() -> None:
    async def scenario(world: World) -> None:
        slow_writes(world)
        await world.shop.carts.add_item("ann", PHONE)
        await asyncio.sleep(10)
        assert await told(world)

    simulate(scenario)


def test_a_cart_that_is_opened_again_after_its_timer_fired_is_told() -> None:
    """A checkout that is refused leaves a cart which the platform has to hear of."""

    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("set_reference", FaultKind.DOWN, times=None)
        closing = world.shop.checkouts._closer
        close = closing._close

        async def slowly(*arguments: Any) -> None:
            closing._close = close  # type: ignore[method-assign]
            slow_writes(world)
            await close(*arguments)

        closing._close = slowly  # type: ignore[assignment, method-assign]
        assert isinstance(await world.try_to_check_out(), ProviderDown)
        world.provider.faults.clear()
        await asyncio.sleep(10)
        assert await told(world)

    simulate(scenario)
