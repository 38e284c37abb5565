"""Shops that obey, for the conformance suite: the simulators'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telecom_cart.model import Context
from telecom_cart.provider import Lookup, Provider
from telecom_cart.providers.faults import Fault
from telecom_cart.providers.http_calls import Patience
from telecom_cart.providers.obedient_double import ObedientPlatform
from telecom_cart.providers.salesforce import SalesforceProvider, SalesforceSettings
from telecom_cart.providers.shopify import ShopifyProvider, ShopifySettings
from telecom_cart.simulators.simulation import Simulation
from tests.cart.remembered_once import RememberingOnce

STRONG, EVENTUAL = Lookup(), Lookup(30.0)
IMPATIENT = Patience(timeout_seconds=5, tries=2, backoff_seconds=0.001, wait_seconds=0.05)
CLIENT, ADMIN = "hidden-client-secret", "hidden-admin-secret"


class SimulatedShop(ObedientPlatform):
    secrets: tuple[str, ...] = (CLIENT, ADMIN)

    def __init__(self, simulation: Simulation, provider: Provider, *, has_one_basket: bool, finds_many: bool) -> None:
        super().__init__(simulation.platform, simulation.faults, has_one_basket=has_one_basket, finds_many=finds_many)
        self.simulation = simulation
        self.provider = provider

    def fault(self, verb: str, fault: Fault) -> None:
        self.simulation.add_fault(verb, fault)

    def advance(self, seconds: float) -> None:
        self.simulation.offset += seconds

    def forget_tokens(self) -> None:
        self.simulation.forget_tokens()

    def platform_id(self, context: Context) -> str:
        return self.simulation.platform_id(context.basket_id)


@asynccontextmanager
async def salesforce_shop(
    simulation: Simulation, address: str, lookup: Lookup, *, patience: Patience = IMPATIENT
) -> AsyncIterator[SimulatedShop]:
    simulation.reset()
    simulation.order_number_from_reference = lookup.lag_seconds == 0
    once = RememberingOnce()
    settings = SalesforceSettings(address, "f_ecom_demo", "shop", "cart", CLIENT, lookup, "admin", ADMIN)
    provider = SalesforceProvider(settings, once, patience=patience)
    yield SimulatedShop(simulation, provider, has_one_basket=True, finds_many=lookup.lag_seconds != 0)
    await provider.close()
    await once.close()


@asynccontextmanager
async def shopify_shop(
    simulation: Simulation, address: str, lookup: Lookup, *, patience: Patience = IMPATIENT
) -> AsyncIterator[SimulatedShop]:
    simulation.reset()
    once = RememberingOnce()
    provider = ShopifyProvider(ShopifySettings(address, CLIENT, ADMIN, lookup), once, patience=patience)
    yield SimulatedShop(simulation, provider, has_one_basket=False, finds_many=True)
    await provider.close()
    await once.close()
