"""The documents: a cart per user, with its open attempt; closed attempts and orders, which outlive it.

A cart is one document, so that items, seal and attempt change together or not at all:

    open ──checkout──▶ sealed ──▶ ordered            removed; the next read begins a new cart
                         └──▶ open, if the attempt ended without an order

It is sealed while its last attempt is open. `revision` counts what users change, and is in the ETag; the version of the
record also counts what becomes of it, such as an attempt, or the basket at the provider.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Literal

from telecom_cart.taxes import Province, TaxLine, taxes_on
from telecom_cart.totals import Totals, subtotal

ItemType = Literal["device", "plan", "addon"]


class SyncStatus(StrEnum):
    PENDING = "pending"
    SYNCED = "synced"
    FAILED = "failed"


class CheckoutStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """How far an attempt has come. Before `submitting` nothing was sent that could make an order."""

    PREPARING = "preparing"
    SUBMITTING = "submitting"
    CLOSED = "closed"


class AttemptOutcome(StrEnum):
    """How an attempt ended. `not_made`: its basket can no longer be ordered, and there is no order."""

    ORDERED = "ordered"
    REJECTED = "rejected"
    NOT_MADE = "not_made"


@dataclass(frozen=True)
class Item:
    product_id: str
    name: str
    type: ItemType
    quantity: int
    price: int
    """Of one, in minor units."""


@dataclass(frozen=True)
class Context:
    """A basket at the provider. `session` is whose it is there, and is kept even if the basket is gone."""

    session: str
    basket_id: str = ""
    """It may contain a secret, behind a question mark. Users and logs see `shown_id`."""
    place: str = ""
    """Which shop at which platform it is in: `Provider.place`."""

    @property
    def shown_id(self) -> str:
        return self.basket_id.partition("?")[0]

    def __repr__(self) -> str:
        return f"Context(basket_id={self.shown_id!r})"


@dataclass(frozen=True)
class Hold:
    """Somebody works on something at the provider, and is waited for until then."""

    by: str
    until: int

    def lasts(self, *, now: int, seconds: float) -> bool:
        return is_ahead(self.until, now=now, seconds=seconds)


@dataclass(frozen=True)
class Attempt:
    """One try to turn a cart into an order: what was to be ordered, and how far it came."""

    reference: str
    """What the order will be called at the provider: `<cart id>-<number>`."""
    number: int
    started_at: int
    deadline_at: int
    """Until then it is left to whoever began it; then it is recovered."""
    items: tuple[Item, ...]
    totals: Totals
    stage: Stage = Stage.PREPARING
    context: Context | None = None
    submitted_at: int | None = None
    """None, if certainly nothing was asked for that could make an order."""
    since: int = 0
    """No order of it can have been made before, by the clock of the platform."""
    closed_at: int | None = None
    closing: AttemptOutcome | None = None
    reasons: tuple[str, ...] = ()
    held: Hold | None = None
    """Who looks what became of it."""
    unresolved: str = ""
    """Why that is not known yet."""
    ticket: str = ""
    """What the platform tells by what became of it, if it has accepted an order to make it later."""
    trust: int = 0
    """`Trust.turn` when it began."""
    refusal: tuple[str, ...] = ()
    """For what reasons the platform said that there is no order. It is asked before that is believed."""
    place: str = ""
    """Which shop at which platform was asked to order: no other can tell what became of it."""
    needs_person: bool = False
    """Whether nobody but a person can find out what became of it, as things are."""
    denied: bool = False
    """Whether a person has found that there is no order. Then its basket is closed, so that there can be none later."""
    is_over: bool = False
    """Whether nothing could be made of its basket any more when a person was last told what is not known: whoever looks
    after that sees all that there will be."""

    @property
    def is_open(self) -> bool:
        return self.stage is not Stage.CLOSED

    def is_under_way(self, *, now: int, seconds: float) -> bool:
        """Whether it is left to whoever began it, who had so many seconds."""
        return is_ahead(self.deadline_at, now=now, seconds=seconds)


@dataclass(frozen=True)
class Cart:
    id: str
    user_id: str
    currency: str
    created_at: int
    updated_at: int
    accessed_at: int
    items: tuple[Item, ...] = ()
    province: Province | None = None
    revision: int = 1
    context: Context | None = None
    context_used_at: int = 0
    sync: SyncStatus = SyncStatus.SYNCED
    """An empty cart has nothing that the provider would have to know."""
    synced_at: int | None = None
    sync_error: str = ""
    syncing: Hold | None = None
    attempt: Attempt | None = None
    """The last one."""
    order_id: str = ""
    """It became this order."""
    completed_at: int | None = None

    @property
    def is_sealed(self) -> bool:
        return self.attempt is not None and self.attempt.is_open

    @property
    def etag(self) -> str:
        return f"{self.id}.{self.revision}"

    @property
    def checkout_status(self) -> CheckoutStatus:
        if self.order_id:
            return CheckoutStatus.COMPLETED
        if self.attempt is None:
            return CheckoutStatus.PENDING
        if self.attempt.is_open:
            return CheckoutStatus.UNKNOWN if self.attempt.unresolved else CheckoutStatus.IN_PROGRESS
        return CheckoutStatus.FAILED

    def item(self, product_id: str) -> Item | None:
        return next((item for item in self.items if item.product_id == product_id), None)

    def totals(self, on: date) -> Totals:
        return totals_of(self.items, self.province, self.currency, on)

    def with_items(self, items: tuple[Item, ...], *, now: int) -> Cart:
        """What users changed. The provider is told later."""
        return replace(self, items=items, sync=SyncStatus.PENDING, sync_error="").touched(now=now)

    def touched(self, *, now: int) -> Cart:
        """Something that users have put in is another one."""
        return replace(self, revision=self.revision + 1, updated_at=now, accessed_at=max(now, self.accessed_at))

    def with_attempt(self, attempt: Attempt, *, now: int) -> Cart:
        """The revision stays: a checkout that failed can be asked for again with the same tag."""
        return replace(self, attempt=attempt, updated_at=now, accessed_at=max(now, self.accessed_at))


@dataclass(frozen=True)
class Order:
    """What was ordered. Its id is made of the cart's, so a cart has one order at most, whoever records it."""

    id: str
    user_id: str
    cart_id: str
    reference: str
    number: str
    """The provider's."""
    provider: str
    items: tuple[Item, ...]
    totals: Totals
    placed_at: int
    platform_subtotal: int | None = None
    """The platform decides prices, and has ordered at this other subtotal, or in another currency: that changed after
    it was read back."""
    platform_currency: str = ""
    """Of `platform_subtotal`. Empty: that of the totals."""
    others: tuple[str, ...] = ()
    """More orders that the provider has for this checkout. There must be none: if there are, a person is told."""
    place: str = ""
    """Which shop at which platform has it."""
    position: int = 0
    """Where it stands among those of its user: behind all that were recorded before, whatever the clock said. Mostly
    `placed_at`; 0 is that, too."""


@dataclass(frozen=True)
class Unknown:
    """An attempt of which nobody knew what became, for whoever looks for such."""

    user_id: str
    cart_id: str


@dataclass(frozen=True)
class Listed:
    """An order in the list of its user, whose first one is that by which a late repeat is known."""

    order_id: str
    cart_id: str
    at: int
    position: int = 0


def totals_of(items: tuple[Item, ...], province: Province | None, currency: str, on: date) -> Totals:
    net = subtotal((item.price, item.quantity) for item in items)
    taxes: tuple[TaxLine, ...] | None = None if province is None else taxes_on(net, province, on)
    return Totals(currency=currency, subtotal=net, taxes=taxes)


def is_ahead(until: int, *, now: int, seconds: float) -> bool:
    """Whether something that was to last so many seconds does so still. What ends later than that was written before
    the clock was set back, and nobody knows how long ago."""
    return now < until <= now + round(seconds * 1000)


def listed_key(user_id: str, position: int, order_id: str) -> str:
    """Where an order stands in the list of its user: the newest one first. No id contains a slash."""
    return f"{user_id}/{10**14 - position:015}/{order_id}"


def order_id_of(cart_id: str) -> str:
    return f"order-{cart_id}"
