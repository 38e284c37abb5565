"""A platform's memory, without a network: baskets that expire, orders, and a ledger of what was asked.

The double uses it as it is, the simulators through HTTP. Ordering and closing are atomic here, as they are one step of
one thread, unless an order is only accepted: then it is made later, whatever becomes of its basket.

What a fault made happen `later` happens before the first look at the platform after its time, as of its time: nobody
can tell the difference, and no task has to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from telecom_cart.provider import Line, PlacedOrder
from telecom_cart.providers.faults import Fault, FaultKind

LIFE_SECONDS = 1800.0


@dataclass
class StoredBasket:
    id: str
    session: str
    currency: str
    expires_at: float
    lines: dict[str, Line] = field(default_factory=dict)
    """By the id of the line. The prices are those that were asked for; `Platform.lines` says those that count."""
    reference: str = ""
    is_closed: bool = False
    """Marked as closed by its owner, on a platform that cannot delete baskets."""
    is_taken: bool = False
    """It was ordered, or is being ordered, and can only be read."""

    def lines_of(self, product_id: str) -> list[str]:
        return [id for id, line in self.lines.items() if line.product_id == product_id]


@dataclass(frozen=True)
class StoredOrder:
    number: str
    reference: str
    basket_id: str
    lines: tuple[Line, ...]
    subtotal: int
    made_at: float
    currency: str = ""
    status: str = "created"

    @property
    def is_live(self) -> bool:
        return self.status not in ("failed", "cancelled")

    @property
    def placed(self) -> PlacedOrder:
        return PlacedOrder(self.number, self.status, self.is_live, self.subtotal, currency=self.currency)


@dataclass(frozen=True)
class Entry:
    """One request, as the platform saw it."""

    at: float
    verb: str
    basket_id: str
    effect: str


class Platform:
    """`clock` is the platform's, in seconds."""

    def __init__(self, clock: Callable[[], float], *, life_seconds: float = LIFE_SECONDS, run: str = "") -> None:
        """`run` is in every id. One that forgets, while its customers do not, needs another one each time."""
        self.clock = clock
        self.life_seconds = life_seconds
        self.lookup_lag_seconds = 0.0
        self.prices: dict[str, int] = {}
        """What products cost here, whatever is asked for them."""
        self.price_drift = 0
        self.doubles_lines = False
        """A product that is added again becomes another line, instead of more of the first."""
        self.lingers_seconds = 0.0
        """How long a basket can still be read after it was ordered."""
        self.loses_references = False
        """Orders do not carry the reference of their basket where we can see it."""
        self.is_blind = False
        """A search finds nothing."""
        self.tickets: dict[str, StoredOrder | None] = {}
        """What became of orders that were accepted. None: it is still being made."""
        self._baskets: dict[str, StoredBasket] = {}
        self._orders: list[StoredOrder] = []
        self._ledger: list[Entry] = []
        self._count = 0
        self.run = run
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._as_of: float | None = None

    def now(self) -> float:
        return self.clock() if self._as_of is None else self._as_of

    @property
    def baskets(self) -> dict[str, StoredBasket]:
        self.catch_up()
        return self._baskets

    @property
    def orders(self) -> list[StoredOrder]:
        self.catch_up()
        return self._orders

    @property
    def ledger(self) -> list[Entry]:
        self.catch_up()
        return self._ledger

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen then."""
        self._later.append((self.now() + seconds, act))

    def catch_up(self) -> None:
        """Do what was to happen by now, in the order of time."""
        while self._as_of is None:
            due = [waiting for waiting in self._later if waiting[0] <= self.clock()]
            if not due:
                return
            first = min(due, key=lambda waiting: waiting[0])
            self._later.remove(first)
            self._as_of = first[0]
            try:
                first[1]()
            finally:
                self._as_of = None

    def note(self, verb: str, basket_id: str, effect: str) -> None:
        self.ledger.append(Entry(self.now(), verb, basket_id, effect))

    def next_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self.run}{self._count:08d}"

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
        theirs = (basket for basket in list(self.baskets.values()) if basket.session == session)
        return next((basket for basket in theirs if self.basket(basket.id) and not basket.is_taken), None)

    def set_line(self, basket: StoredBasket, line: Line, *, line_id: str = "") -> None:
        """Make a line this one. Without `line_id`: make it the only one of its product."""
        others = [] if line_id else basket.lines_of(line.product_id)
        for other in others:
            del basket.lines[other]
        if line.quantity:
            basket.lines[line_id or line.product_id] = line
        else:
            basket.lines.pop(line_id, None)
        self.prolong(basket)

    def add_line(self, basket: StoredBasket, line: Line) -> None:
        """What platforms call adding: to what there is."""
        present = basket.lines_of(line.product_id)
        if present and not self.doubles_lines:
            there = basket.lines[present[0]]
            basket.lines[present[0]] = replace(line, quantity=there.quantity + line.quantity)
        else:
            basket.lines[self.next_id("l") if present else line.product_id] = line
        self.prolong(basket)

    def lines(self, basket: StoredBasket) -> dict[str, Line]:
        """Lines by id, at this platform's prices of now."""
        return {id: self.priced(line) for id, line in basket.lines.items()}

    def subtotal(self, basket: StoredBasket) -> int:
        return sum(line.price * line.quantity for line in self.lines(basket).values())

    def prolong(self, basket: StoredBasket) -> None:
        """Changes reset the life of a basket."""
        basket.expires_at = self.now() + self.life_seconds

    def order(self, basket_id: str, *, number: str = "", status: str = "created") -> StoredOrder | None:
        """Turn a basket into an order, which consumes it. None: there is no such basket. A failed order consumes
        nothing."""
        basket = self.basket(basket_id)
        if basket is None or basket.is_taken:
            return None
        return self._made(basket, number=number, status=status)

    def accept(self, basket_id: str, seconds: float) -> str | None:
        """Take a basket to be ordered so much later, as it is now. The answer is what the order can be asked for by.
        None: there is no such basket."""
        basket = self.basket(basket_id)
        if basket is None or basket.is_taken:
            return None
        basket.is_taken = True
        ticket, accepted = self.next_id("a"), replace(basket, lines=dict(basket.lines))
        self.tickets[ticket] = None

        def make() -> None:
            self.tickets[ticket] = self._made(accepted)

        self.later(seconds, make)
        return ticket

    def _made(self, basket: StoredBasket, *, number: str = "", status: str = "created") -> StoredOrder:
        order = StoredOrder(
            number=number or self.next_id("o"),
            reference=basket.reference,
            basket_id=basket.id,
            lines=tuple(self.lines(basket).values()),
            subtotal=self.subtotal(basket),
            made_at=self.now(),
            currency=basket.currency,
            status=status,
        )
        self.orders.append(order)
        if order.is_live:
            basket.is_taken = True
            if self.lingers_seconds:

                def vanish() -> None:
                    self.expire(basket.id)

                self.later(self.lingers_seconds, vanish)
            else:
                self.baskets.pop(basket.id, None)
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

    def plant(self, order: StoredOrder) -> None:
        """An order from nowhere: what nobody should see, and a test wants to."""
        self.orders.append(order)

    def indexed(self) -> list[StoredOrder]:
        """The orders that a search sees by now, which lags."""
        seen_at = self.now() - self.lookup_lag_seconds
        return [] if self.is_blind else [order for order in self.orders if order.made_at <= seen_at]

    def searched(self) -> list[StoredOrder]:
        """The orders that a search sees that does not lag."""
        return [] if self.is_blind else self.orders

    def set_status(self, number: str, status: str) -> None:
        self._orders = [replace(order, status=status) if order.number == number else order for order in self.orders]

    @contextmanager
    def drifted(self, by: int = 1) -> Iterator[None]:
        """Other prices, in this block."""
        self.price_drift += by
        try:
            yield
        finally:
            self.price_drift -= by

    def priced(self, line: Line) -> Line:
        """A line at the price that this platform sees."""
        return replace(line, price=self.prices.get(line.product_id, line.price) + self.price_drift)


def befall(platform: Platform, fault: Fault, *, basket_id: str, session: str) -> None:
    """What a fault changes at the platform before the request is looked at."""
    match fault.kind:
        case FaultKind.EXPIRE_NOW if basket_id:
            platform.expire(basket_id)
        case FaultKind.QUOTA if session and platform.basket_of(session) is None:
            stray = platform.create(session, "CAD")
            platform.set_line(stray, Line("stray", 1, 100))
        case _:
            pass
