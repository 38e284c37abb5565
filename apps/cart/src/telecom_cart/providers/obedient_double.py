"""A shop that obeys, for the conformance suite: the double's, and what others on the same platform have in common."""

from __future__ import annotations

from telecom_cart.model import Context
from telecom_cart.provider import Lookup, Provider
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import Fault, Faults
from telecom_cart.providers.obedient_shop import SeenOrder
from telecom_cart.providers.platform import Platform, StoredOrder


class ObedientPlatform:
    """What the double's platform and the simulators' have in common."""

    provider: Provider
    secrets: tuple[str, ...] = ()

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

    def lose_references(self) -> None:
        self.platform.loses_references = True

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


class DoubleShop(ObedientPlatform):
    def __init__(self, lookup: Lookup, *, is_atomic: bool = True) -> None:
        self.seconds = 1_700_000_000.0
        super().__init__(Platform(lambda: self.seconds), Faults(), has_one_basket=True, finds_many=True)
        self.provider: Provider = DoubleProvider(
            self.platform, faults=self.faults, lookup=lookup, latency_seconds=0.0, is_atomic=is_atomic
        )

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
