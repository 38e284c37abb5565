"""Shops that obey, for the conformance suite: the double's and the simulators'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from telecom_cart.model import Context
from telecom_cart.provider import Lookup, Provider
from telecom_cart.providers.calling import Patience
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import Fault, Faults
from telecom_cart.providers.obedient_shop import SeenOrder
from telecom_cart.providers.platform import Platform, StoredOrder
from telecom_cart.providers.salesforce import SalesforceProvider, SalesforceSettings
from telecom_cart.providers.shopify import ShopifyProvider, ShopifySettings
from telecom_cart.simulators.simulation import Simulation
from tests.cart.remembering import RememberingOnce

STRONG, EVENTUAL = Lookup(), Lookup(30.0)
IMPATIENT = Patience(timeout_seconds=5, tries=2, backoff_seconds=0.001, wait_seconds=0.05)
CLIENT, ADMIN = "hidden-client-secret", "hidden-admin-secret"


class _Obeying:
    """What the double's platform and the simulators' have in common."""

    provider: Provider
    secrets: tuple[str, ...] = (CLIENT, ADMIN)

    def __init__(self, platform: Platform, faults: Faults, *, has_one_basket: bool, finds_many: bool) -> None:
        self.platform, self.faults = platform, faults
        self.has_one_basket, self.finds_many = has_one_basket, finds_many

    def fault(self, verb: str, fault: Fault) -> None:
        self.faults.add(verb, fault)

    def clear_faults(self) -> None:
        self.faults.clear()

    def expire(self, context: Context) -> None:
        self.platform.expire()

    def lag(self, seconds: float) -> None:
        self.platform.lookup_lag_seconds = seconds

    def double_lines(self) -> None:
        self.platform.doubles_lines = True

    def set_price(self, product_id: str, price: int) -> None:
        self.platform.prices[product_id] = price

    def forget_tokens(self) -> None: ...

    def plant_order(self, context: Context, reference: str) -> None:
        number, basket_id = self.platform.next_id("o"), self.platform_id(context)
        self.platform.plant(StoredOrder(number, reference, basket_id, (), 0, self.platform.now()))

    def platform_id(self, context: Context) -> str:
        return context.basket_id

    def cancel_order(self, reference: str) -> None:
        for order in self.platform.orders:
            if order.reference == reference:
                self.platform.set_status(order.number, "cancelled")

    def orders(self) -> list[SeenOrder]:
        return [SeenOrder(order.reference, order.is_live, order.subtotal) for order in self.platform.orders]


class DoubleShop(_Obeying):
    def __init__(self, lookup: Lookup) -> None:
        self.seconds = 1_700_000_000.0
        super().__init__(Platform(lambda: self.seconds), Faults(), has_one_basket=True, finds_many=True)
        self.provider: Provider = DoubleProvider(self.platform, faults=self.faults, lookup=lookup, latency_seconds=0.0)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class SimulatedShop(_Obeying):
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
async def salesforce_shop(simulation: Simulation, address: str, lookup: Lookup) -> AsyncIterator[SimulatedShop]:
    simulation.reset()
    simulation.order_number_from_reference = lookup.lag_seconds == 0
    once = RememberingOnce()
    settings = SalesforceSettings(address, "f_ecom_demo", "shop", "cart", CLIENT, lookup, "admin", ADMIN)
    provider = SalesforceProvider(settings, once, patience=IMPATIENT)
    yield SimulatedShop(simulation, provider, has_one_basket=True, finds_many=lookup.lag_seconds != 0)
    await provider.close()
    await once.close()


@asynccontextmanager
async def shopify_shop(simulation: Simulation, address: str, lookup: Lookup) -> AsyncIterator[SimulatedShop]:
    simulation.reset()
    once = RememberingOnce()
    provider = ShopifyProvider(ShopifySettings(address, CLIENT, ADMIN, lookup), once, patience=IMPATIENT)
    yield SimulatedShop(simulation, provider, has_one_basket=False, finds_many=True)
    await provider.close()
    await once.close()
