"""What is answered. Money is in integer minor units, instants are RFC 3339 in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from telecom_cart.checkout import Placed
from telecom_cart.closer import failure_of
from telecom_cart.errors import CheckoutUnknown
from telecom_cart.model import Attempt, AttemptOutcome, Cart, Item, Order
from telecom_cart.totals import Totals

View = dict[str, Any]


def cart_view(cart: Cart, on: date) -> View:
    attempt = cart.attempt
    return {
        "id": cart.id,
        "userId": cart.user_id,
        "version": cart.etag,
        "items": items_view(cart.items),
        "province": cart.province,
        "currency": cart.currency,
        "totals": totals_view(_totals(cart, on)),
        "createdAt": instant(cart.created_at),
        "updatedAt": instant(cart.updated_at),
        "lastAccessedAt": instant(cart.accessed_at),
        "externalCartId": (cart.context.shown_id or None) if cart.context else None,
        "syncStatus": cart.sync,
        "lastSyncedAt": instant(cart.synced_at),
        "lastSyncError": cart.sync_error or None,
        "checkoutStatus": cart.checkout_status,
        "checkoutStartedAt": instant(attempt.started_at) if attempt else None,
        "checkoutCompletedAt": instant(cart.completed_at),
        "checkoutResult": {"orderId": cart.order_id} if cart.order_id else None,
        "checkoutError": _error_view(attempt),
        "attempt": attempt_view(attempt) if attempt else None,
    }


def summary_view(cart: Cart, on: date) -> View:
    return {
        "cartId": cart.id,
        "userId": cart.user_id,
        "version": cart.etag,
        "products": len(cart.items),
        "quantity": sum(item.quantity for item in cart.items),
        "province": cart.province,
        "currency": cart.currency,
        "totals": totals_view(_totals(cart, on)),
        "syncStatus": cart.sync,
        "checkoutStatus": cart.checkout_status,
    }


def order_view(order: Order) -> View:
    return {
        "orderId": order.id,
        "orderNumber": order.number,
        "reference": order.reference,
        "cartId": order.cart_id,
        "userId": order.user_id,
        "provider": order.provider,
        "status": "completed",
        "items": items_view(order.items),
        "totals": totals_view(order.totals),
        "platformSubtotal": order.platform_subtotal,
        "platformCurrency": order.platform_currency or None,
        "placedAt": instant(order.placed_at),
    }


def result_view(placed: Placed) -> View:
    """What a checkout became. `replayed`: it was on record before, and this request has ordered nothing."""
    return {**order_view(placed.order), "replayed": placed.is_replay}


def orders_view(orders: Sequence[Order], *, has_more: bool) -> View:
    """`next` is what `after` has to be for those that follow."""
    return {"orders": [order_view(order) for order in orders], "next": orders[-1].id if has_more else None}


def items_view(items: Sequence[Item]) -> list[View]:
    return [
        {
            "productId": item.product_id,
            "name": item.name,
            "type": item.type,
            "quantity": item.quantity,
            "price": item.price,
            "lineTotal": item.price * item.quantity,
        }
        for item in items
    ]


def totals_view(totals: Totals) -> View:
    """`taxes` and `tax` are null as long as nobody has said which province it is: that is no tax of zero."""
    lines = totals.taxes
    return {
        "currency": totals.currency,
        "subtotal": totals.subtotal,
        "taxes": None
        if lines is None
        else [{"name": line.name, "rate": line.rate, "amount": line.amount} for line in lines],
        "tax": totals.tax,
        "total": totals.total,
    }


def attempt_view(attempt: Attempt) -> View:
    return {
        "reference": attempt.reference,
        "number": attempt.number,
        "stage": attempt.stage,
        "closing": attempt.closing,
        "startedAt": instant(attempt.started_at),
        "deadlineAt": instant(attempt.deadline_at),
        "submittedAt": instant(attempt.submitted_at),
        "closedAt": instant(attempt.closed_at),
        "reasons": list(attempt.reasons),
        "unresolved": attempt.unresolved or None,
    }


def instant(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _totals(cart: Cart, on: date) -> Totals:
    """What is being ordered is at the taxes with which that began."""
    return cart.attempt.totals if cart.is_sealed and cart.attempt else cart.totals(on)


def _error_view(attempt: Attempt | None) -> View | None:
    if attempt is None or attempt.closing is AttemptOutcome.ORDERED:
        return None
    if attempt.is_open:
        return {"code": CheckoutUnknown.code, "detail": attempt.unresolved} if attempt.unresolved else None
    failure = failure_of(attempt)
    return {"code": failure.code, "detail": failure.detail}
