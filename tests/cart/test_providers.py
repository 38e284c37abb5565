"""Every provider keeps the contract: the double, Salesforce and Shopify, with strong and eventual look-ups."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from telecom_cart.providers.conformance import ProviderConformance
from telecom_cart.providers.obedient_shop import Shop
from telecom_cart.simulators.serving import serving
from telecom_cart.simulators.simulation import Simulation
from tests.cart.shops import EVENTUAL, STRONG, DoubleShop, salesforce_shop, shopify_shop

Served = tuple[Simulation, str]


@pytest.fixture(scope="module")
async def salesforce(anyio_backend: str) -> AsyncIterator[Served]:
    async with serving("salesforce") as served:
        yield served


@pytest.fixture(scope="module")
async def shopify(anyio_backend: str) -> AsyncIterator[Served]:
    async with serving("shopify") as served:
        yield served


class TestDouble(ProviderConformance):
    @pytest.fixture
    async def shop(self) -> Shop:
        return DoubleShop(STRONG)


class TestDoubleWithEventualLookup(ProviderConformance):
    @pytest.fixture
    async def shop(self) -> Shop:
        return DoubleShop(EVENTUAL)


class TestSalesforce(ProviderConformance):
    @pytest.fixture
    async def shop(self, salesforce: Served) -> AsyncIterator[Shop]:
        async with salesforce_shop(*salesforce, STRONG) as shop:
            yield shop


@pytest.mark.slow
class TestSalesforceWithEventualLookup(ProviderConformance):
    @pytest.fixture
    async def shop(self, salesforce: Served) -> AsyncIterator[Shop]:
        async with salesforce_shop(*salesforce, EVENTUAL) as shop:
            yield shop


class TestShopify(ProviderConformance):
    @pytest.fixture
    async def shop(self, shopify: Served) -> AsyncIterator[Shop]:
        async with shopify_shop(*shopify, STRONG) as shop:
            yield shop


@pytest.mark.slow
class TestShopifyWithEventualLookup(ProviderConformance):
    @pytest.fixture
    async def shop(self, shopify: Served) -> AsyncIterator[Shop]:
        async with shopify_shop(*shopify, EVENTUAL) as shop:
            yield shop
