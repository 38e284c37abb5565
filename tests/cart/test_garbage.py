"""A platform that answers nonsense: errors of the contract, and never a claim that nothing was ordered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from starlette.requests import Request as Asked
from starlette.responses import Response
from starlette.routing import Route

from telecom_cart.model import Context
from telecom_cart.provider import Provider, ProviderError, Uncertain, Unsure
from telecom_cart.providers.http_calls import Answer, Once, Request
from telecom_cart.providers.obedient_shop import PHONE
from telecom_cart.providers.salesforce import SalesforceProvider, SalesforceSettings
from telecom_cart.providers.shopify import ShopifyProvider, ShopifySettings
from telecom_cart.simulators import server
from telecom_cart.simulators.simulation import Simulation
from tests.cart.shops import EVENTUAL, IMPATIENT, STRONG

TOKEN = {"access_token": "t", "usid": "u", "expires_in": 1800}
GARBAGE: list[tuple[int, object]] = [
    (200, ""),
    (200, "<html>"),
    (200, []),
    (200, {"data": None}),
    (200, {"data": []}),
    (200, {"data": [None, 1, []]}),
    (200, {"data": {"cart": 1, "orders": [], "cartCreate": [], "cartSubmitForCompletion": 7}}),
    (200, {"data": {"cart": {"lines": {"nodes": [1]}, "cost": []}, "orders": {"nodes": [1]}}}),
    (200, {"data": {"cart": {"lines": {"nodes": [{}]}}, "cartSubmitForCompletion": {"result": []}}}),
    (200, {"errors": 1}),
    (200, {"errors": ["x"]}),
    (200, {"orderNo": None, "currency": 1, "productItems": [1]}),
    (200, {"currency": "CAD", "productItems": [{"productId": "phone-1", "quantity": "many", "basePrice": 1}]}),
    (302, {}),
    (400, "Bad request"),
    (418, {}),
]
Sends = Callable[[str, Once], Provider]

pytestmark = pytest.mark.slow


def salesforce(address: str, once: Once) -> Provider:
    return SalesforceProvider(SalesforceSettings(address, "o", "s", "c", "x", STRONG), once, patience=IMPATIENT)


def salesforce_searching(address: str, once: Once) -> Provider:
    return SalesforceProvider(SalesforceSettings(address, "o", "s", "c", "x", EVENTUAL), once, patience=IMPATIENT)


def shopify(address: str, once: Once) -> Provider:
    return ShopifyProvider(ShopifySettings(address, "x", "y", STRONG), once, patience=IMPATIENT)


class Answering:
    """`Once` that has this answer."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def __call__(self, request: Request, *, request_id: str, timeout_seconds: float) -> Answer:
        return self.answer


def encoded(body: object) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


@pytest.fixture
async def nonsense(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[dict[str, Answer], str]]:
    """A server that answers what it is told."""
    told: dict[str, Answer] = {}

    async def answer(asked: Asked) -> Response:
        if "oauth2" in asked.url.path:
            return Response(encoded(TOKEN))
        return Response(told["answer"].body, told["answer"].status)

    routes = [Route("/{path:path}", answer, methods=["GET", "POST", "PATCH", "DELETE"])]
    monkeypatch.setitem(server.SIMULATIONS, "nonsense", lambda: (Simulation(), routes))
    async with server.serving("nonsense") as (_, address):
        yield told, address


@pytest.mark.parametrize("provider_of", [salesforce, salesforce_searching, shopify])
async def test_nonsense_is_an_error_of_the_contract(
    nonsense: tuple[dict[str, Answer], str], provider_of: Sends
) -> None:
    told, address = nonsense
    for status, body in GARBAGE:
        told["answer"] = Answer(status, {}, encoded(body))
        provider = provider_of(address, Answering(told["answer"]))
        context = Context("u", "gid://shopify/Cart/1?key=2")
        for act in (
            provider.create_cart("u", [PHONE], currency="CAD"),
            provider.add_item(context, PHONE),
            provider.remove_item(context, PHONE.product_id),
            provider.get_cart(context),
            provider.validate_context(context),
            provider.set_reference(context, "r-1"),
            provider.checkout(context, "r-1"),
            provider.close_cart(context),
        ):
            with suppress(ProviderError):
                await act
        found = await provider.find_order(context, "r-1", since=1_700_000_000_000)
        # An empty list of orders in the right form is no nonsense.
        assert isinstance(found, Unsure) or body == {"data": []}
        assert isinstance((await provider.health()).is_up, bool)
        await provider.close()


@pytest.mark.parametrize(("platform", "provider_of"), [("salesforce", salesforce), ("shopify", shopify)])
async def test_nonsense_instead_of_an_order_is_uncertain(platform: str, provider_of: Sends) -> None:
    async with server.serving(platform) as (_, address):
        for status, body in [*GARBAGE, (200, {"data": {"cartSubmitForCompletion": {"result": None}}}), (500, {})]:
            provider = provider_of(address, Answering(Answer(status, {}, encoded(body))))
            context = await provider.create_cart(await provider.open_session(), [PHONE], currency="CAD")
            await provider.set_reference(context, "r-1")
            with pytest.raises(Uncertain):
                await provider.checkout(context, "r-1")
            await provider.close()


async def test_an_accepted_order_whose_outcome_is_refused_to_us_is_uncertain() -> None:
    """What Shopify has accepted may be ordered, whatever it says to the question what became of it."""
    accepted = {"__typename": "SubmitSuccess", "attemptId": "never-heard-of"}
    once = Answering(Answer(200, {}, encoded({"data": {"cartSubmitForCompletion": {"result": accepted}}})))
    async with server.serving("shopify") as (simulation, address):
        for denied in (False, True):
            provider = shopify(address, once)
            context = await provider.create_cart("", [PHONE], currency="CAD")
            await provider.set_reference(context, "r-1")
            if denied:
                simulation.denied = ("checkout_result",)
            with pytest.raises(Uncertain):
                await provider.checkout(context, "r-1")
            await provider.close()
