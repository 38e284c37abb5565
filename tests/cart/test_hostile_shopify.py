"""A Shopify that says less than it should, or something else: what is told is what is known, and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from telecom_cart.checkout import Placed
from telecom_cart.errors import CheckoutFailed, CheckoutUnknown, ProviderDown
from telecom_cart.guarded_provider import GuardedProvider
from telecom_cart.provider import ContextGone, Lookup, ProviderError, Uncertain, Unreachable, Unsure
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.simulators.shopify import ShopifySimulation
from tests.cart.hostile_shop import ITEM, asked, shopping
from tests.cart.lying_platform import Lie, Lying, lying, raw, within
from tests.cart.shops import EVENTUAL, STRONG

POLL = ("data", "cartCompletionAttempt")
OTHERS = [{"key": "c_orderRef", "value": "cart-6-1"}]


@pytest.fixture
async def shopify() -> AsyncIterator[Lying]:
    async with lying("shopify", STRONG) as platform:
        yield platform


async def test_an_order_that_is_named_without_a_reference_is_ours_and_one_with_another_is_not(shopify: Lying) -> None:
    context = await shopify.filled()
    shopify.lies["get_order"] = within("data", "order", "customAttributes", value=[])
    placed = await shopify.shop.provider.checkout(context, shopify.reference)
    assert (placed.is_live, placed.is_findable) == (True, False)
    context = await shopify.filled()
    shopify.lies["get_order"] = within("data", "order", "customAttributes", value=OTHERS)
    with pytest.raises(Uncertain) as raised:
        await shopify.shop.provider.checkout(context, shopify.reference)
    assert shopify.shop.platform.orders[-1].number in raised.value.told


async def test_the_order_that_is_named_is_in_the_log_whoever_asks(
    shopify: Lying, caplog: pytest.LogCaptureFixture
) -> None:
    context = await shopify.filled()
    shopify.lies["get_order"] = within("data", "order", "customAttributes", value=OTHERS)
    shopify.lies["find_order"] = within("data", "orders", "nodes", value=[])
    provider, tickets = GuardedProvider(shopify.shop.provider), list[str]()

    async def accepted(ticket: str) -> None:
        tickets.append(ticket)

    for act in (
        lambda: provider.checkout(context, shopify.reference, accepted=accepted),
        lambda: provider.find_order(context, shopify.reference, since=0, ticket=tickets[0]),
    ):
        caplog.clear()
        with suppress(Uncertain):
            assert isinstance(await act(), Unsure)
        assert shopify.shop.platform.orders[-1].number in caplog.text


async def test_an_order_is_made_once_although_no_order_carries_its_reference(tmp_path: Path) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        told.shop.platform.loses_references = True
        await shop.carts.add_item("ann", ITEM)
        assert isinstance(await asked(shop), Placed)
        assert len(told.shop.orders()) == 1
        assert "not found by our references" in await shop.trust.doubt()


@pytest.mark.parametrize("lookup", [STRONG, EVENTUAL])
async def test_an_order_without_a_reference_that_a_look_up_shows_may_be_the_one_that_is_looked_for(
    lookup: Lookup,
) -> None:
    async with lying("shopify", lookup) as platform:
        context = await platform.filled()
        platform.shop.platform.loses_references = True
        platform.lies["checkout"] = raw(b"", 502)
        with pytest.raises(Uncertain):
            await platform.shop.provider.checkout(context, platform.reference)
        assert isinstance(await platform.shop.provider.find_order(context, platform.reference, since=0), Unsure)


async def test_an_order_that_is_named_and_not_there_is_unknown_until_it_is(tmp_path: Path) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        await shop.carts.add_item("ann", ITEM)
        none = within("data", "order", value=None)
        told.lies |= {"get_order": none, "find_order": within("data", "orders", "nodes", value=[])}
        for _ in range(3):
            outcome = await asked(shop)
            assert isinstance(outcome, CheckoutUnknown)
            assert not outcome.retryable  # a person has to look
            await asyncio.sleep(0.3)
        told.lies.clear()
        assert isinstance(await asked(shop), Placed)
        assert len(told.shop.orders()) == 1


async def test_an_attempt_that_is_said_to_have_failed_is_not_believed_while_its_order_is_not_seen(
    tmp_path: Path,
) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        await shop.carts.add_item("ann", ITEM)
        failed = {"__typename": "CartCompletionFailed", "errors": [{"code": "E", "message": "no"}]}
        told.lies["checkout_result"] = within(*POLL, value=failed)
        told.lies["find_order"] = within("data", "orders", "nodes", value=[])
        for _ in range(3):
            assert isinstance(await asked(shop), CheckoutUnknown)
        del told.lies["find_order"]
        assert isinstance(await asked(shop), Placed)
        assert len(told.shop.orders()) == 1


async def test_an_attempt_that_is_forgotten_is_not_taken_for_one_that_failed(shopify: Lying) -> None:
    context = await shopify.filled()
    shopify.lies["checkout_result"] = within(*POLL, value=None)
    shopify.lies["find_order"] = within("data", "orders", "nodes", value=[])
    tickets: list[str] = []

    async def accepted(ticket: str) -> None:
        tickets.append(ticket)

    with pytest.raises(Uncertain):
        await shopify.shop.provider.checkout(context, shopify.reference, accepted=accepted)
    found = await shopify.shop.provider.find_order(context, shopify.reference, since=0, ticket=tickets[0])
    assert isinstance(found, Unsure)
    assert found.needs_person


@pytest.mark.parametrize(
    "lie", [raw(b'{"errors": "no"}', 401), raw(b'{"errors": "no"}', 403), raw(b'{"errors": "x"}', 429)]
)
async def test_an_order_that_was_made_and_put_off_is_found(lie: Lie, tmp_path: Path) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        await shop.carts.add_item("ann", ITEM)
        told.lies["checkout"] = lie
        assert isinstance(await asked(shop), Placed)
        assert len(told.shop.orders()) == 1


async def test_an_order_that_is_still_being_made_is_unknown_and_then_found(tmp_path: Path) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        told.shop.provider.settings = _hasty(told)  # type: ignore[attr-defined]
        await shop.carts.add_item("ann", ITEM)
        told.shop.fault("checkout", Fault(FaultKind.PROCESSING, seconds=100))
        for _ in range(4):
            outcome = await asked(shop)
            assert isinstance(outcome, CheckoutUnknown)
            assert "still making" in str(outcome)
        told.shop.advance(101)
        assert isinstance(await asked(shop), Placed)
        assert len(told.shop.orders()) == 1


def _hasty(told: Lying) -> object:
    return replace(told.shop.provider.settings, timeout_seconds=0.5)  # type: ignore[attr-defined]


async def test_a_cart_that_cannot_be_made_ends_the_checkout_at_once(tmp_path: Path) -> None:
    async with shopping("shopify", tmp_path) as (told, shop):
        wrong = {"code": "INVALID", "field": ["id"], "message": "no"}
        told.lies["create_cart"] = within("data", "cartCreate", value={"cart": None, "userErrors": [wrong]})
        await shop.carts.add_item("ann", ITEM)
        assert isinstance(await asked(shop), CheckoutFailed | ProviderDown)
        told.lies.clear()
        assert isinstance(await asked(shop), Placed)


async def test_a_basket_that_is_made_cannot_be_gone(shopify: Lying) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise ContextGone("no such basket")

    provider = shopify.shop.provider
    provider.create_cart = provider.open_session = gone  # type: ignore[method-assign, assignment]
    guarded = GuardedProvider(provider)
    for act in (guarded.create_cart("", [], currency="CAD"), guarded.open_session()):
        with pytest.raises(Unreachable):
            await act


PASSING: list[object] = [
    [{"message": "a"}, {"message": "T", "extensions": {"code": "THROTTLED"}}],
    [{"message": "upstream timeout", "path": ["cart"], "extensions": {"code": "TIMEOUT"}}],
    [{"message": "x", "extensions": {"code": "NOTHING"}}, {"message": "x", "extensions": {"code": "TIMEOUT"}}],
    [{"message": "something went wrong"}],
]


@pytest.mark.parametrize("errors", PASSING)
async def test_an_error_that_passes_is_no_refusal(errors: object, shopify: Lying) -> None:
    context = await shopify.filled()
    shopify.lies["get_cart"] = lambda _: {"data": {"cart": None}, "errors": errors}
    with pytest.raises(Unreachable):
        await shopify.shop.provider.get_cart(context)


async def test_health_says_when_there_is_no_shop_and_when_orders_cannot_be_looked_up(shopify: Lying) -> None:
    provider = shopify.shop.provider
    assert (await provider.health()).is_up
    for verb, lie in (
        ("health", within("data", "shop", value=None)),
        ("health_of_orders", lambda _: {"errors": [{"message": "no", "extensions": {"code": "ACCESS_DENIED"}}]}),
    ):
        shopify.lies[verb] = lie
        assert not (await provider.health()).is_up, verb
        shopify.lies.clear()
    assert isinstance(shopify.shop.simulation, ShopifySimulation)


async def test_health_of_salesforce_says_when_orders_cannot_be_looked_up() -> None:
    for lookup in (STRONG, EVENTUAL):
        async with lying("salesforce", lookup) as platform:
            assert (await platform.shop.provider.health()).is_up
            platform.lies["find_order"] = raw(b'{"type": "https://x/forbidden", "title": "no"}', 403)
            assert not (await platform.shop.provider.health()).is_up


async def test_what_nobody_knows_of_is_written_to_the_log(shopify: Lying, caplog: pytest.LogCaptureFixture) -> None:
    context = await shopify.filled()
    shopify.lies["checkout"] = raw(b"<html>", 502)
    with caplog.at_level(logging.WARNING, "telecom_cart"), pytest.raises(ProviderError):
        await GuardedProvider(shopify.shop.provider).checkout(context, shopify.reference)
    assert shopify.reference in caplog.text
    assert "502" in caplog.text
