"""How an attempt ends, whoever finds out: the request, a recovery, or a person.

The order is recorded first, then the attempt is closed; a crash in between finds the order, and closes. What is left of
the cart is cleaned up last; that may fail.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from mainspring.errors import MainspringError
from telecom_cart import crashes
from telecom_cart.errors import CartError, CheckoutFailed, CheckoutInProgress, CheckoutUnknown, ProviderDown
from telecom_cart.model import Attempt, AttemptOutcome, Cart, Order, Stage, SyncStatus, order_id_of
from telecom_cart.provider import PlacedOrder
from telecom_cart.repository import Repository
from telecom_cart.wakes import Wakes

logger = logging.getLogger("telecom_cart")


class Closer:
    def __init__(self, *, repository: Repository, wakes: Wakes) -> None:
        self._repository = repository
        self._wakes = wakes

    async def ordered(self, cart: Cart, attempt: Attempt, orders: Sequence[PlacedOrder]) -> Order:
        """There is an order. More than one is a thing for a person, and said loudly."""
        if len(orders) > 1:
            numbers = ", ".join(order.number for order in orders)
            logger.error("the platform has several orders for %s: %s", attempt.reference, numbers)
        subtotal, wanted = orders[0].subtotal, attempt.totals
        currency = orders[0].currency or wanted.currency
        if differs := subtotal is not None and (subtotal, currency) != (wanted.subtotal, wanted.currency):
            said = "the platform ordered %s for %s at %s %s, not at %s %s: its price changed after it was read back"
            amounts = (subtotal, currency, wanted.subtotal, wanted.currency)
            logger.error(said, orders[0].number, attempt.reference, *amounts)
        order = await self._repository.record(
            Order(
                id=order_id_of(cart.id),
                user_id=cart.user_id,
                cart_id=cart.id,
                reference=attempt.reference,
                number=orders[0].number,
                provider=attempt.place.partition(":")[0],
                items=attempt.items,
                totals=attempt.totals,
                placed_at=self._repository.now_ms(),
                platform_subtotal=subtotal if differs else None,
                platform_currency=currency if differs else "",
                others=tuple(order.number for order in orders[1:]),
                place=attempt.place,
            )
        )
        logger.info("%s of %s is the order %s", attempt.reference, cart.user_id, order.number)
        crashes.reach(crashes.RECORDED)
        await self._close(cart, attempt, AttemptOutcome.ORDERED, ())
        crashes.reach(crashes.CLOSED)
        await self.clean_up(cart.user_id, cart.id, attempt)
        return order

    async def rejected(self, cart: Cart, attempt: Attempt, reasons: tuple[str, ...]) -> None:
        """The platform said no, or would order something else."""
        _note(cart, attempt, "was rejected", reasons)
        await self._close(cart, attempt, AttemptOutcome.REJECTED, reasons)
        await self._forget_timer(attempt)

    async def not_made(self, cart: Cart, attempt: Attempt, reasons: tuple[str, ...]) -> None:
        """There is no order, and of its basket there can be none."""
        _note(cart, attempt, "was not made", reasons)
        if attempt.context is not None and attempt.context.basket_id:
            await self._wakes.close_basket(attempt.context)
        await self._close(cart, attempt, AttemptOutcome.NOT_MADE, reasons)
        await self._forget_timer(attempt)

    async def clean_up(self, user_id: str, cart_id: str, attempt: Attempt | None) -> None:
        """Remove what was ordered. If that fails, the next read or the job does it."""
        try:
            await self._repository.remove(user_id, lambda cart: cart.id == cart_id and bool(cart.order_id))
        except Exception:  # the order is on record: nothing here may make it look otherwise
            logger.exception("the cart %s of %s was ordered, and not cleaned up", cart_id, user_id)
        if attempt is not None:
            await self._forget_timer(attempt)

    async def _close(self, cart: Cart, attempt: Attempt, closing: AttemptOutcome, reasons: tuple[str, ...]) -> None:
        now = self._repository.now_ms()
        closed = replace(
            attempt, stage=Stage.CLOSED, closing=closing, reasons=reasons, closed_at=now, held=None, unresolved=""
        )
        await self._repository.keep(closed)

        def decide(present: Cart | None) -> Cart | None:
            if present is None or present.id != cart.id or present.attempt is None or not present.attempt.is_open:
                return None
            if present.attempt.reference != attempt.reference:
                return None
            ended = present.with_attempt(closed, now=now)
            if closing is AttemptOutcome.ORDERED:
                return replace(ended, order_id=order_id_of(cart.id), completed_at=now)
            is_gone = closing is AttemptOutcome.NOT_MADE and present.attempt.context is not None
            return replace(ended, sync=SyncStatus.PENDING, context=None if is_gone else ended.context)

        is_open = closing is not AttemptOutcome.ORDERED
        async with self._wakes.before_write(cart.user_id) if is_open else nullcontext():
            await self._repository.change(cart.user_id, decide)
        if attempt.unresolved:
            await self._repository.forget_unknown(attempt.reference)

    async def _forget_timer(self, attempt: Attempt) -> None:
        with suppress(MainspringError):  # it finds nothing to do
            await self._wakes.forget_recovery(attempt.reference)


def _note(cart: Cart, attempt: Attempt, how: str, reasons: tuple[str, ...]) -> None:
    logger.info("%s of %s %s: %s", attempt.reference, cart.user_id, how, " ".join(map(_sentence, reasons)))


def failure_of(attempt: Attempt) -> CartError:
    """What a user is told of an attempt that ended without an order."""
    reasons = " ".join(map(_sentence, attempt.reasons))
    if attempt.closing is AttemptOutcome.NOT_MADE and attempt.submitted_at is None:
        return ProviderDown(f"Nothing was ordered, and the cart is kept. {reasons}")
    # What is refused before it is ordered, such as another price, is refused as long as the cart is the same.
    is_refused = attempt.closing is AttemptOutcome.REJECTED and attempt.submitted_at is None
    return CheckoutFailed(f"Nothing was ordered. {reasons}", retryable=not is_refused)


def unknown(attempt: Attempt) -> CheckoutUnknown:
    """What a user who asks for an order is told if nobody knows whether it was made."""
    doing = "" if attempt.needs_person else " This is being resolved."
    return CheckoutUnknown(
        f"{_unknown(attempt)}{doing} Asking again never orders twice.", retryable=not attempt.needs_person
    )


def sealed(attempt: Attempt) -> CheckoutInProgress:
    """What a user who tries to change a cart is told while it is being ordered."""
    if not attempt.unresolved:
        return CheckoutInProgress()
    told = f"The cart cannot be changed until that is known. {_unknown(attempt)}"
    return CheckoutInProgress(told, retryable=not attempt.needs_person)


def _unknown(attempt: Attempt) -> str:
    return f"Nobody knows yet whether this cart was ordered: {_sentence(attempt.unresolved)}"


def _sentence(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
