"""The clock of the store is set back, as when a machine starts and then learns what time it is."""

from __future__ import annotations

import asyncio

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutUnknown
from telecom_cart.provider import Lookup
from telecom_cart.providers.faults import FaultKind
from telecom_cart.repository import Repository
from tests.cart.simulated_shop import World, simulate

HOURS = 10 * 3600


def set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    truly = Repository.now_ms
    monkeypatch.setattr(Repository, "now_ms", lambda self: truly(self) - HOURS * 1000)


def test_an_attempt_of_somebody_who_died_is_recovered_although_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.DELAY, seconds=30)
        waiting = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        await world.kill()
        set_back(monkeypatch)
        await waiting
        await world.shop.cleaner.sweep()
        await asyncio.sleep(5)
        assert not (await world.cart()).is_sealed
        outcome = await world.try_to_check_out()
        assert isinstance(outcome, Placed)
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_a_look_of_somebody_who_died_is_taken_over_although_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.APPLY_THEN_DROP)
        world.fault("find_order", FaultKind.DELAY, seconds=30)
        waiting = asyncio.create_task(world.try_to_check_out())
        await asyncio.sleep(5)
        assert (await world.cart()).attempt.held is not None  # type: ignore[union-attr]
        await world.kill()
        set_back(monkeypatch)
        await waiting
        assert isinstance(await world.try_to_check_out(), Placed)
        assert len(world.live_orders) == 1

    simulate(scenario)


def test_a_basket_that_was_gone_is_waited_for_from_now_if_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await world.fill()
        world.fault("checkout", FaultKind.FAIL_BEFORE)
        world.fault("validate_context", FaultKind.EXPIRE_NOW)
        assert isinstance(await world.try_to_check_out(), CheckoutUnknown)
        set_back(monkeypatch)
        await asyncio.sleep(600)
        assert isinstance(await world.try_to_check_out(), Placed)
        assert len(world.live_orders) == 1

    simulate(scenario, lookup=Lookup(20.0))
