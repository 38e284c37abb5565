"""A platform's memory, without a network: baskets that expire, orders, and a ledger of what was asked.

The double uses it as it is, the simulators through HTTP. Ordering and closing are atomic here, as they are one step of
one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from telecom_cart.provider import Line, PlacedOrder

LIFE_SECONDS = 1800.0


@dataclass
class StoredBasket:
    id: str
    session: str
    currency: str
    expires_at: float
    lines: dict[str, Line] = field(default_factory=dict)
    reference: str = ""

    @property
    def subtotal(self) -> int:
        return sum(line.price * line.quantity for line in self.lines.values())


@dataclass(frozen=True)
class StoredOrder:
    number: str
    reference: str
    basket_id: str
    lines: tuple[Line, ...]
    subtotal: int
    made_at: float
    status: str = "created"

    @property
    def is_live(self) -> bool:
        return self.status not in ("failed", "cancelled")

    @property
    def placed(self) -> PlacedOrder:
        return PlacedOrder(self.number, self.status, self.is_live)


@dataclass(frozen=True)
class Entry:
    """One request, as the platform saw it."""

    at: float
    verb: str
    basket_id: str
    effect: str


class Platform:
    """`now` is the platform's clock, in seconds."""

    def __init__(self, now: Callable[[], float], *, life_seconds: float = LIFE_SECONDS) -> None:
        self.now = now
        self.life_seconds = life_seconds
        self.lookup_lag_seconds = 0.0
        self.price_drift = 0
        self.baskets: dict[str, StoredBasket] = {}
        self.orders: list[StoredOrder] = []
        self.ledger: list[Entry] = []
        self._count = 0

    def note(self, verb: str, basket_id: str, effect: str) -> None:
        self.ledger.append(Entry(self.now(), verb, basket_id, effect))

    def next_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count:08d}"

    def create(self, session: str, currency: str) -> StoredBasket:
        basket = StoredBasket(self.next_id("b"), session, currency, self.now() + self.life_seconds)
        self.baskets[basket.id] = basket
        return basket

    def basket(self, basket_id: str) -> StoredBasket | None:
        """The basket, if it is there. To look at it does not prolong its life."""
        found = self.baskets.get(basket_id)
        if found is not None and found.expires_at <= self.now():
            del self.baskets[basket_id]
            return None
        return found

    def basket_of(self, session: str) -> StoredBasket | None:
        """The open basket of a customer."""
        return next((b for b in list(self.baskets.values()) if b.session == session and self.basket(b.id)), None)

    def set_line(self, basket: StoredBasket, line: Line) -> None:
        if line.quantity:
            basket.lines[line.product_id] = line
        else:
            basket.lines.pop(line.product_id, None)
        self.prolong(basket)

    def prolong(self, basket: StoredBasket) -> None:
        """Changes reset the life of a basket."""
        basket.expires_at = self.now() + self.life_seconds

    def order(self, basket_id: str, *, number: str = "", status: str = "created") -> StoredOrder | None:
        """Turn a basket into an order, which consumes it. None: there is no such basket. A failed order consumes
        nothing."""
        basket = self.basket(basket_id)
        if basket is None:
            return None
        order = StoredOrder(
            number=number or self.next_id("o"),
            reference=basket.reference,
            basket_id=basket_id,
            lines=tuple(basket.lines.values()),
            subtotal=basket.subtotal,
            made_at=self.now(),
            status=status,
        )
        self.orders.append(order)
        if order.is_live:
            del self.baskets[basket_id]
        return order

    def close(self, basket_id: str) -> bool:
        """Remove a basket. False: it was gone."""
        found = self.basket(basket_id)
        if found is not None:
            del self.baskets[basket_id]
        return found is not None

    def expire(self, basket_id: str = "") -> int:
        """Let one basket, or all of them, be gone."""
        gone = [basket_id] if basket_id else list(self.baskets)
        return sum(self.baskets.pop(each, None) is not None for each in gone)

    def orders_with(self, reference: str) -> list[StoredOrder]:
        """Those that can be seen by now."""
        seen_at = self.now() - self.lookup_lag_seconds
        return [order for order in self.orders if order.reference == reference and order.made_at <= seen_at]

    def set_status(self, number: str, status: str) -> None:
        self.orders = [replace(order, status=status) if order.number == number else order for order in self.orders]

    def priced(self, price: int) -> int:
        """A price as this platform sees it."""
        return price + self.price_drift
