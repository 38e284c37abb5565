"""The simulators as people and tests meet them: a process, and `/_sim`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest

from telecom_cart.provider import ProviderError
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.http_calls import Patience
from telecom_cart.providers.obedient_shop import PHONE
from telecom_cart.simulators.server import serving
from telecom_cart.simulators.simulation import Simulation
from tests.cart.shops import STRONG, SimulatedShop, salesforce_shop, shopify_shop


@pytest.fixture(params=["salesforce", "shopify"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Simulation, str]]:
    async with serving(request.param) as served:
        yield served


@pytest.fixture
async def shop(served: tuple[Simulation, str]) -> AsyncIterator[SimulatedShop]:
    shop_of = salesforce_shop if served[0].name == "salesforce" else shopify_shop
    async with shop_of(*served, STRONG) as shop:
        yield shop


@pytest.fixture
async def sim(served: tuple[Simulation, str]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served[1] + "/_sim") as client:
        yield client


@pytest.mark.parametrize("platform", ["salesforce", "shopify"])
async def test_a_simulator_is_a_process_that_says_its_address_and_ends_on_request(platform: str) -> None:
    command = [sys.executable, "-m", "telecom_cart.simulators", platform, "--port", "0"]
    paths = os.pathsep.join(sys.path)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    assert process.stdout is not None
    try:
        said = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        address = next(word for word in said.split() if word.startswith("http")).rstrip(";")
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{address}/_sim/state")).json()["platform"] == platform
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_help_names_every_command(served: tuple[Simulation, str]) -> None:
    async with httpx.AsyncClient(base_url=served[1]) as client:
        for each in (await client.get("/_sim")).json():
            method, path = each.split()
            assert (await client.request(method, path)).status_code in ((200,) if method == "GET" else (200, 400))


async def test_the_clock_expires_baskets_and_settings_say_when(shop: SimulatedShop, sim: httpx.AsyncClient) -> None:
    assert (await sim.post("/settings", json={"contextLifeSeconds": 60})).status_code == 200
    context = await shop.provider.create_cart(await shop.provider.open_session(), (), currency="CAD")
    await sim.post("/clock", json={"advance": 59})
    assert await shop.provider.validate_context(context)
    await sim.post("/clock", json={"advance": 2})
    assert not await shop.provider.validate_context(context)


async def test_a_basket_is_expired_by_the_name_that_the_cart_knows(shop: SimulatedShop, sim: httpx.AsyncClient) -> None:
    context = await shop.provider.create_cart(await shop.provider.open_session(), (), currency="CAD")
    assert (await sim.post("/expire", json={"basketId": context.basket_id})).json() == {"expired": 1}
    assert not await shop.provider.validate_context(context)


async def test_faults_are_added_listed_and_cleared(sim: httpx.AsyncClient) -> None:
    for kind in FaultKind:
        added = await sim.post("/faults", json={"verb": "checkout", "kind": kind, "times": None, "seconds": 2})
        assert added.json()["waiting"][-1] == {"verb": "checkout", "kind": kind, "times": None, "seconds": 2.0}
    assert (await sim.delete("/faults")).json()["waiting"] == []


async def test_a_price_that_drifts_once_is_as_before_afterwards(shop: SimulatedShop, sim: httpx.AsyncClient) -> None:
    context = await shop.provider.create_cart(await shop.provider.open_session(), [PHONE], currency="CAD")
    await sim.post("/faults", json={"verb": "get_cart", "kind": "priceDrift"})
    prices = [(await shop.provider.get_cart(context)).subtotal for _ in range(2)]
    assert prices == [PHONE.price + 1, PHONE.price]
    await sim.post("/faults", json={"verb": "get_cart", "kind": "priceDrift", "times": None})
    assert (await shop.provider.get_cart(context)).subtotal == PHONE.price + 1
    await sim.delete("/faults")
    assert (await shop.provider.get_cart(context)).subtotal == PHONE.price


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/faults", {"verb": "dance", "kind": "down"}),
        ("/faults", {"verb": "checkout", "kind": "sleepy"}),
        ("/faults", {"verb": "checkout", "kind": "down", "times": 0}),
        ("/clock", {"advance": "soon"}),
        ("/clock", {"advance": -1}),
        ("/settings", {"colour": "red"}),
        ("/settings", {"contextLifeSeconds": "long"}),
        ("/settings", []),
    ],
)
async def test_a_command_that_is_wrong_is_refused_with_the_reason(
    sim: httpx.AsyncClient, path: str, body: object
) -> None:
    answer = await sim.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["detail"]


async def test_state_and_ledger_show_all_and_no_secret(shop: SimulatedShop, sim: httpx.AsyncClient) -> None:
    context = await shop.provider.create_cart(await shop.provider.open_session(), (), currency="CAD")
    await shop.provider.close_cart(context)
    ledger = (await sim.get("/ledger")).json()
    assert "create_cart" in [call["verb"] for call in ledger["calls"]]
    assert (await sim.get("/ledger", params={"after": ledger["next"]})).json()["calls"] == []
    seen = (await sim.get("/state")).text + str(ledger)
    assert "key=" not in seen
    assert (await sim.post("/reset")).json()["baskets"] == []


@pytest.mark.parametrize("kind", [None, *FaultKind])
async def test_the_ledger_shows_one_request_to_order_whatever_is_answered(
    shop: SimulatedShop, kind: FaultKind | None
) -> None:
    context = await shop.provider.create_cart(await shop.provider.open_session(), [PHONE], currency="CAD")
    await shop.provider.set_reference(context, "r-1")
    if kind is not None:
        shop.fault("checkout", Fault(kind, times=None, seconds=0.01))
    for _ in range(2):
        with suppress(ProviderError):
            await shop.provider.checkout(context, "r-1")
    asked = [entry for entry in shop.platform.ledger if entry.verb == "checkout" and "late" not in entry.effect]
    assert len(asked) == 1
    assert len([order for order in shop.orders() if order.is_live]) <= 1


async def test_a_platform_that_forgot_everything_gives_nobody_the_name_of_somebody_else(
    shop: SimulatedShop, sim: httpx.AsyncClient
) -> None:
    before = await shop.provider.open_session()
    old = await shop.provider.create_cart(before, [PHONE], currency="CAD")
    await sim.post("/reset")
    after = await shop.provider.open_session()
    new = await shop.provider.create_cart(after, [PHONE], currency="CAD")
    assert old.basket_id != new.basket_id
    assert before == after == "" or before != after
    with suppress(ProviderError):
        assert not await shop.provider.validate_context(old)


@pytest.mark.parametrize("verb", ["create_cart", "get_cart", "add_item", "remove_item", "set_reference", "close_cart"])
async def test_a_platform_that_wants_fewer_requests_is_waited_for(served: tuple[Simulation, str], verb: str) -> None:
    shop_of = salesforce_shop if served[0].name == "salesforce" else shopify_shop
    async with shop_of(*served, STRONG, patience=Patience()) as shop:
        provider = shop.provider
        context = await provider.create_cart(await provider.open_session(), [PHONE], currency="CAD")
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "create_cart": lambda: provider.create_cart(context.session, [PHONE], currency="CAD"),
            "get_cart": lambda: provider.get_cart(context),
            "add_item": lambda: provider.add_item(context, replace(PHONE, quantity=3)),
            "remove_item": lambda: provider.remove_item(context, PHONE.product_id),
            "set_reference": lambda: provider.set_reference(context, "r-1"),
            "close_cart": lambda: provider.close_cart(context),
        }
        shop.fault(verb, Fault(FaultKind.THROTTLE))
        await acts[verb]()
        assert shop.faults.by_verb[verb] == []
