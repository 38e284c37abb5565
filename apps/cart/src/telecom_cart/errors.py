"""Every error that users of the cart meet: a stable code each, and whether the same request may be sent again.

    CartError
    ├── ValidationFailed       400  every field that is wrong
    ├── EmptyCart              400
    ├── AmbiguousCheckout      400  a repeat, or a new wish? say which cart
    ├── CartNotFound           404
    ├── ItemNotFound           404
    ├── OrderNotFound          404
    ├── Outdated               412  If-Match names another state of the cart
    ├── AlreadyCheckedOut      422
    ├── CheckoutInProgress     422
    ├── CheckoutFailed         422  definitely no order; may be asked for again
    ├── CheckoutUnknown        503  being resolved; asking again never orders twice
    ├── OperationTimeout       503
    ├── ProviderDown           503  nothing was ordered
    └── InternalError          500

Status codes live in `api`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldProblem:
    pointer: str
    detail: str


class CartError(Exception):
    """Something went wrong."""

    code = "INTERNAL_ERROR"
    retryable = False
    retry_after_seconds: int | None = None

    def __init__(self, detail: str = "", *, errors: tuple[FieldProblem, ...] = (), retryable: bool = True) -> None:
        """`retryable`: false if in this case it makes no sense to ask again."""
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.errors = errors
        if not retryable:
            self.retryable, self.retry_after_seconds = False, None
        super().__init__(self.detail)


class ValidationFailed(CartError):
    """The request is not valid."""

    code = "VALIDATION_ERROR"


class EmptyCart(CartError):
    """The cart is empty: there is nothing to order."""

    code = "EMPTY_CART"


class AmbiguousCheckout(CartError):
    """There was an order a moment ago. Say which cart is meant: by cartId, If-Match or Idempotency-Key."""

    code = "AMBIGUOUS_CHECKOUT"


class CartNotFound(CartError):
    """This user has no cart."""

    code = "CART_NOT_FOUND"


class ItemNotFound(CartError):
    """This product is not in the cart."""

    code = "ITEM_NOT_FOUND"


class OrderNotFound(CartError):
    """There is no such order."""

    code = "ORDER_NOT_FOUND"


class Outdated(CartError):
    """The cart has changed since it was read."""

    code = "PRECONDITION_FAILED"


class AlreadyCheckedOut(CartError):
    """This cart was ordered. Read the cart to begin a new one."""

    code = "ALREADY_CHECKED_OUT"


class CheckoutInProgress(CartError):
    """This cart is being ordered. Ask again for the result."""

    code = "CHECKOUT_IN_PROGRESS"
    retryable = True
    retry_after_seconds = 2


class CheckoutFailed(CartError):
    """Nothing was ordered."""

    code = "CHECKOUT_FAILED"
    retryable = True


class CheckoutUnknown(CartError):
    """Nobody knows yet whether this cart was ordered. This is being resolved; asking again never orders twice."""

    code = "CHECKOUT_UNKNOWN"
    retryable = True
    retry_after_seconds = 5


class OperationTimeout(CartError):
    """Too many requests for this cart at once. Nothing was changed."""

    code = "OPERATION_TIMEOUT"
    retryable = True
    retry_after_seconds = 1


class ProviderDown(CartError):
    """The shop's platform cannot be reached. Nothing was ordered, and the cart is kept."""

    code = "EXTERNAL_PROVIDER_ERROR"
    retryable = True
    retry_after_seconds = 10


class InternalError(CartError):
    """The cart failed unexpectedly."""
