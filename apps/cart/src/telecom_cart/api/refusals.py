"""Errors of HTTP itself, which the service knows nothing about."""

from __future__ import annotations

from telecom_cart.errors import CartError


class NoSuchPath(CartError):
    """There is nothing at this path."""

    code = "NOT_FOUND"


class MethodNotAllowed(CartError):
    """This path does not support this method."""

    code = "METHOD_NOT_ALLOWED"


class CrossSite(CartError):
    """A page of another site may not change anything here."""

    code = "CROSS_SITE"


class BodyTooLarge(CartError):
    """The body of the request is too large."""

    code = "PAYLOAD_TOO_LARGE"


class NotJson(CartError):
    """Expected a body with Content-Type: application/json."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class KeyInUse(CartError):
    """The first request with this Idempotency-Key is still under way."""

    code = "IDEMPOTENCY_KEY_IN_USE"
    retryable = True
    retry_after_seconds = 1


class KeyReused(CartError):
    """This Idempotency-Key was used with another request. A new wish needs a new key."""

    code = "IDEMPOTENCY_KEY_REUSED"


class KeyUnknown(CartError):
    """A request with this Idempotency-Key was begun, and may have been carried out. Read the cart to see."""

    code = "IDEMPOTENCY_OUTCOME_UNKNOWN"


class StoreDown(CartError):
    """The cart's store cannot be used now. Ask again: nothing is ordered twice."""

    code = "STORE_UNAVAILABLE"
    retryable = True
    retry_after_seconds = 1
