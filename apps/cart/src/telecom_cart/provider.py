"""THE CONTRACT with a commerce platform.

The cart is the truth; a *basket* at the platform is a copy that may vanish at any time. Everything but `checkout` may
be repeated: quantities are absolute, and what is gone is gone. `checkout` is called once per reference, ever; what
became of it is asked for by `find_order`, and `close_cart` makes sure that nothing can come of it later.

A change of a basket (`add_item`, `remove_item`, `set_reference`) that got no answer may happen at any time later, also
after a repeat of it. So it is `Unreachable` and not repeated by the provider, and the cart never orders that basket.

Every method raises, and nothing else:

    ContextGone    there is no such basket: it expired, was closed, or became an order
    Refused        the platform understood and said no, for reasons; a repeat gets the same answer
    NotSent        `checkout` alone: a refusal before an order was asked for
    Unreachable    no usable answer; nothing is known, and nothing that cannot be repeated was asked for
    Uncertain      `checkout` alone: the request may have arrived, and an order may have been made or may still be

Once the request for an order has left, no answer is proof that there is none: a gateway may have sent it twice, and
tell the answer to the second. A refusal in the platform's own words is `Refused`, and the cart asks before it believes
it; what cannot be read is `Uncertain`.

What a platform gives to be kept (sessions, ids of baskets, numbers of orders) is at most 255 printable characters;
anything else is an answer that cannot be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from telecom_cart.model import Context

MOST_CHARACTERS = 255


def is_plain(value: object) -> bool:
    """Whether something is a text that can be stored, shown, sent again, and written on one line."""
    return isinstance(value, str) and 0 < len(value) <= MOST_CHARACTERS and value.isprintable()


class ProviderError(Exception):
    """The platform did not do as it was asked, for these reasons. Users are shown them, so they are in our words."""

    def __init__(self, *reasons: str, told: str = "") -> None:
        """`told`: what the platform said about it, for operators. It has no secrets in it, and is one line."""
        self.reasons = reasons
        self.told = told
        super().__init__("; ".join(reasons))


class ContextGone(ProviderError):
    """The basket no longer exists."""


class Refused(ProviderError):
    """The platform said no."""


class NotSent(Refused):
    """It was refused before an order was asked for: there is none."""


class Unreachable(ProviderError):
    """The platform gave no usable answer."""


class Uncertain(ProviderError):
    """An order may have been made, or may still be."""


@dataclass(frozen=True)
class Line:
    """What is in a basket. `price` is of one, in minor units, as the platform sees it."""

    product_id: str
    quantity: int
    price: int


@dataclass(frozen=True)
class Basket:
    lines: tuple[Line, ...]
    subtotal: int
    """Without taxes and shipping: platforms tax by themselves."""
    currency: str
    reference: str = ""
    read_at: int | None = field(default=None, compare=False)
    """What the platform's clock said, in ms since the epoch; ours may differ. None: it said nothing."""

    def is_same_as(self, other: Basket) -> bool:
        """Whether the same would be ordered, for the same price. Lines have no order."""
        mine, theirs = ((set(each.lines), each.subtotal, each.currency) for each in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class PlacedOrder:
    number: str
    status: str
    is_live: bool
    """False: it failed or was cancelled, and counts as no order."""
    subtotal: int | None = None
    """What was ordered costs this much at the platform, without taxes and shipping. None: it does not say."""
    is_findable: bool = True
    """False: `find_order` would not see it, whatever was declared. The cart then stops believing it."""
    currency: str = ""
    """Of `subtotal`. Empty: the platform does not say."""


@dataclass(frozen=True)
class Found:
    """All orders with a reference, the first one first."""

    orders: tuple[PlacedOrder, ...]


@dataclass(frozen=True)
class Absent:
    """There is no order with that reference; with an eventual look-up: none that can be seen yet."""


@dataclass(frozen=True)
class Unsure:
    """The platform cannot tell now."""

    reason: str
    is_being_made: bool = False
    """It says that it has accepted the order, and is making it."""
    needs_person: bool = False
    """It has answered, in a way that says nothing: asking again is unlikely to help."""
    told: str = field(default="", compare=False)
    """As `ProviderError.told`."""


@dataclass(frozen=True)
class Lookup:
    """How far `find_order` can be believed. `lag_seconds` is how late it may be; 0 is strong, None has no bound."""

    lag_seconds: float | None = 0.0


class Closed(Enum):
    CLOSED = "closed"
    """It was there, and can no longer be ordered. Whether it was not ordered before: see `Provider.is_atomic`."""
    GONE = "gone"
    """It was gone before: expired, closed, or ordered."""


Accepted = Callable[[str], Awaitable[None]]
"""Writes down a ticket: what the platform will tell by what became of an order that it has accepted."""


@dataclass(frozen=True)
class Health:
    is_up: bool
    detail: str = ""
    facts: dict[str, str] = field(default_factory=dict)


class Provider(Protocol):
    """A platform. Safe to be used by many tasks at once."""

    name: str
    place: str
    """Which shop at which platform: the name, a colon, and what tells this shop from others there. It is written down
    with all that is begun here, and what was begun elsewhere is not asked of this one: it has to stay the same."""
    lookup: Lookup
    timeout_seconds: float
    """How long the platform may take to make an order that it was asked for. One that is not seen this long after its
    basket could no longer be ordered, and after the lag of the look-up, was not made: so it must not be too short."""
    is_atomic: bool
    """Whether a basket that was there to be closed was certainly not ordered before. False: the platform may accept an
    order and make it later, while its basket can still be read."""

    async def open_session(self) -> str:
        """Become a customer. Baskets belong to one; the returned session is stored before a basket is created."""
        ...

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        """A basket with these lines. If the customer has one already and may have no other, that one: its lines are
        then whatever they were."""
        ...

    async def add_item(self, context: Context, line: Line) -> None:
        """Make the quantity of a product this one, whatever it was."""
        ...

    async def remove_item(self, context: Context, product_id: str) -> None:
        """Take a product out. Nothing, if it is not in."""
        ...

    async def get_cart(self, context: Context) -> Basket:
        """The basket as the platform has it. A product is in two lines only if the platform has it at two prices;
        `add_item` makes it one again."""
        ...

    async def validate_context(self, context: Context) -> bool:
        """Whether the basket is still there. Cheaper than to read it, where the platform has such a thing."""
        ...

    async def set_reference(self, context: Context, reference: str) -> None:
        """What the order that is made of this basket will be found by."""
        ...

    async def checkout(
        self, context: Context, reference: str, *, basket: Basket | None = None, accepted: Accepted | None = None
    ) -> PlacedOrder:
        """Order the basket. One request that can make an order, and no repeats of it, by no layer.

        A basket that is gone, that carries another reference, or that is not the same as `basket` (what the user wants)
        just before it is ordered, is refused: `NotSent`. A platform that accepts orders and makes them later gives a
        ticket, which is passed to `accepted` at once. `Unreachable`: certainly nothing was ordered, because the request
        was not sent."""
        ...

    async def find_order(
        self, context: Context, reference: str, *, since: int, ticket: str = ""
    ) -> Found | Absent | Unsure:
        """The orders with this reference. `since`: none can have been made before, in ms since the epoch, by the clock
        of the platform as `Basket.read_at` told it; 0 if it told nothing. `ticket`: of the order, if there is one; as
        long as it is being made, that is `Unsure`. Raises nothing: what cannot be asked is `Unsure`."""
        ...

    async def close_cart(self, context: Context) -> Closed:
        """See to it that this basket can never be ordered: the fence."""
        ...

    async def health(self) -> Health:
        """Whether the platform really answers, now."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
