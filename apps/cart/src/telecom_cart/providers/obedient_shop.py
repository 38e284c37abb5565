"""What the conformance suite needs of a platform: one that obeys, with the provider for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from telecom_cart.model import Context
from telecom_cart.provider import Line, Provider
from telecom_cart.providers.faults import Fault, FaultKind

HIDING = (
    FaultKind.FAIL_BEFORE,
    FaultKind.APPLY_THEN_DROP,
    FaultKind.APPLY_THEN_5XX,
    FaultKind.APPLY_LATER,
    FaultKind.THROTTLE,
    FaultKind.DOWN,
)
"""Faults after which nobody knows what happened."""
PHONE, PLAN = Line("phone-1", 1, 89_999), Line("plan/5G é", 2, 4_500)
REFERENCE = "cart-7-1"
SINCE = 1_700_000_000_000


@dataclass(frozen=True)
class SeenOrder:
    """An order as the platform has it, whatever the provider says."""

    reference: str
    is_live: bool
    subtotal: int


class ObedientShop(Protocol):
    """A platform that obeys, with the provider for it. The cart's own `telecom_cart.shop.Shop` uses one."""

    provider: Provider
    has_one_basket: bool
    """A customer has one basket at most."""
    finds_many: bool
    """More than one order can be found by a reference."""
    secrets: tuple[str, ...]
    """What must never be seen in an error."""

    def fault(self, verb: str, fault: Fault) -> None: ...
    def clear_faults(self) -> None: ...
    def advance(self, seconds: float) -> None:
        """Move the platform's clock."""
        ...

    def expire(self, context: Context) -> None: ...
    def lag(self, seconds: float) -> None:
        """How late a search sees orders."""
        ...

    def lose_references(self) -> None:
        """From now on orders do not carry their reference where it can be seen."""
        ...

    def double_lines(self) -> None:
        """From now on a product that is added again becomes another line, if the platform can do that."""
        ...

    def set_price(self, product_id: str, price: int) -> None:
        """What a product costs at the platform, whatever is asked for it."""
        ...

    def forget_tokens(self) -> None: ...
    def plant_order(self, context: Context, reference: str) -> None:
        """One that nobody asked for."""
        ...

    def cancel_order(self, reference: str) -> None: ...
    def orders(self) -> list[SeenOrder]: ...


async def filled(shop: ObedientShop, *lines: Line, reference: str = "") -> Context:
    """A basket of a new customer."""
    session = await shop.provider.open_session()
    context = await shop.provider.create_cart(session, lines or (PHONE, PLAN), currency="CAD")
    if reference:
        await shop.provider.set_reference(context, reference)
    return context


async def lines_in(shop: ObedientShop, context: Context) -> set[Line]:
    return set((await shop.provider.get_cart(context)).lines)
