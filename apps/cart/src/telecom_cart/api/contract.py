"""The OpenAPI document. Bodies are read by `checks`, which names every wrong field; here is what they look like."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from telecom_cart import __version__
from telecom_cart.api.problems import MEDIA_TYPE, STATUSES
from telecom_cart.api.reading import DEFAULT_PAGE, MAX_PAGE
from telecom_cart.checks import ID_LIMIT, MAX_ITEMS, MAX_PRICE, MAX_QUANTITY, NAME_LIMIT
from telecom_cart.errors import CartError
from telecom_cart.model import CheckoutStatus, Closing, Stage, SyncStatus
from telecom_cart.taxes import Province

DESCRIPTION: Final = """
A telecom shop's cart whose checkout cannot order twice, in front of a commerce platform whose baskets expire.

- Money is in integer minor units of `currency`, instants are RFC 3339 in UTC, rates are integers per 100,000.
- Every error is a problem (RFC 9457) with a `code`, and `retryable`: whether the same request may be sent again.
- `ETag` names what is in a cart, items and province. With `If-Match`, a change of another state is refused with 412.
- A checkout may be repeated as often as you like. Say which cart you mean, by `Idempotency-Key`, `If-Match` or
  `cartId`, and a repeat gets the order that there is, however late it comes.
- Reads and changes never wait for the platform. Only a checkout does.

**What it does not do:** it takes no payment and has no login. Anyone who can reach it can use every cart: put it behind
something that authenticates users.
"""


def _object(properties: dict[str, Any], *, required: list[str] | None = None, is_open: bool = True) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return schema if is_open else {**schema, "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_ID: Final = {"type": "string", "maxLength": ID_LIMIT, "pattern": "^[A-Za-z0-9][A-Za-z0-9._:@~-]*$"}
_TEXT: Final = {"type": "string"}
_POINTER: Final = {
    "type": "string",
    "description": "A JSON pointer into the body; /userId, /productId or /orderId for a part of the path; or the name "
    "of a header or of a parameter of the query.",
}
_INSTANT: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer"}
_MONEY: Final = {"type": "integer", "description": "In minor units, such as cents."}
_PROVINCE: Final = _nullable({"enum": list(Province)})
_NEW_ITEM: Final = {
    "productId": _ID,
    "name": {"type": "string", "minLength": 1, "maxLength": NAME_LIMIT},
    "type": {"enum": ["device", "plan", "addon"]},
    "quantity": {"type": "integer", "minimum": 1, "maximum": MAX_QUANTITY, "default": 1},
    "price": {"type": "integer", "minimum": 0, "maximum": MAX_PRICE, "description": "Of one, in minor units."},
}
_ORDER: Final = {
    "orderId": _TEXT,
    "orderNumber": {**_TEXT, "description": "The platform's."},
    "reference": {**_TEXT, "description": "What the platform knows the order by."},
    "cartId": _TEXT,
    "userId": _TEXT,
    "provider": _TEXT,
    "status": {"const": "completed"},
    "items": {"type": "array", "items": _ref("Item")},
    "totals": _ref("Totals"),
    "platformSubtotal": {
        **_nullable({"type": "integer"}),
        "description": "The platform ordered at this subtotal instead: its price changed at the last moment.",
    },
    "platformCurrency": {**_nullable(_TEXT), "description": "Of platformSubtotal; null if that is null."},
    "placedAt": _INSTANT,
}
SCHEMAS: Final[dict[str, Any]] = {
    "NewItem": _object(_NEW_ITEM, required=["productId", "name", "type", "price"], is_open=False),
    "NewQuantity": _object({"quantity": {"type": "integer", "minimum": 0, "maximum": MAX_QUANTITY}}, is_open=False),
    "NewProvince": _object({"province": _PROVINCE}, is_open=False),
    "NewCheckout": _object({"cartId": _nullable(_ID)}, required=[], is_open=False),
    "Item": _object({**_NEW_ITEM, "lineTotal": _MONEY}),
    "Totals": _object(
        {
            "currency": _TEXT,
            "subtotal": _MONEY,
            "taxes": _nullable({"type": "array", "items": _object({"name": _TEXT, "rate": _COUNT, "amount": _MONEY})}),
            "tax": {**_nullable(_MONEY), "description": "null: not determined, because there is no province."},
            "total": {**_MONEY, "description": "The subtotal alone, where taxes are not determined."},
        }
    ),
    "Attempt": _object(
        {
            "reference": _TEXT,
            "number": _COUNT,
            "stage": {"enum": list(Stage)},
            "closing": _nullable({"enum": list(Closing)}),
            "startedAt": _INSTANT,
            "deadlineAt": _INSTANT,
            "submittedAt": _nullable(_INSTANT),
            "closedAt": _nullable(_INSTANT),
            "reasons": {"type": "array", "items": _TEXT},
            "unresolved": _nullable(_TEXT),
        }
    ),
    "Cart": _object(
        {
            "id": _TEXT,
            "userId": _TEXT,
            "version": {**_TEXT, "description": "What ETag says, without its quotes."},
            "items": {"type": "array", "items": _ref("Item")},
            "province": _PROVINCE,
            "currency": _TEXT,
            "totals": _ref("Totals"),
            "createdAt": _INSTANT,
            "updatedAt": _INSTANT,
            "lastAccessedAt": _INSTANT,
            "externalCartId": {**_nullable(_TEXT), "description": "The basket at the platform."},
            "syncStatus": {"enum": list(SyncStatus)},
            "lastSyncedAt": _nullable(_INSTANT),
            "lastSyncError": _nullable(_TEXT),
            "checkoutStatus": {"enum": list(CheckoutStatus)},
            "checkoutStartedAt": _nullable(_INSTANT),
            "checkoutCompletedAt": _nullable(_INSTANT),
            "checkoutResult": _nullable(_object({"orderId": _TEXT})),
            "checkoutError": _nullable(_object({"code": _TEXT, "detail": _TEXT})),
            "attempt": _nullable(_ref("Attempt")),
        }
    ),
    "Summary": _object(
        {
            "cartId": _TEXT,
            "userId": _TEXT,
            "version": _TEXT,
            "products": _COUNT,
            "quantity": _COUNT,
            "province": _PROVINCE,
            "currency": _TEXT,
            "totals": _ref("Totals"),
            "syncStatus": {"enum": list(SyncStatus)},
            "checkoutStatus": {"enum": list(CheckoutStatus)},
        }
    ),
    "Order": _object(_ORDER),
    "Orders": _object(
        {
            "orders": {"type": "array", "items": _ref("Order"), "maxItems": MAX_PAGE},
            "next": {**_nullable(_TEXT), "description": "What `after` has to be for older ones; null: there are none."},
        }
    ),
    "CheckoutResult": _object(
        {**_ORDER, "replayed": {"type": "boolean", "description": "It was ordered before, and not by this request."}}
    ),
    "Health": _object(
        {
            "status": {"enum": ["healthy", "degraded"]},
            "provider": _object(
                {
                    "name": _TEXT,
                    "status": {"enum": ["up", "down"]},
                    "detail": _nullable(_TEXT),
                    "facts": {"type": "object", "additionalProperties": _TEXT},
                }
            ),
            "unknownCheckouts": {**_COUNT, "description": "Their outcome is not yet known; see `unknown`."},
        }
    ),
    "Problem": _object(
        {
            "type": _TEXT,
            "title": _TEXT,
            "status": _COUNT,
            "code": {"enum": list(STATUSES)},
            "detail": _TEXT,
            "retryable": {"type": "boolean"},
            "errors": {"type": "array", "items": _object({"pointer": _POINTER, "detail": _TEXT})},
            "correlationId": _TEXT,
        }
    ),
}
_ALWAYS: Final = ("INTERNAL_ERROR", "STORE_UNAVAILABLE", "VALIDATION_ERROR")
_CHANGES: Final = (
    "ALREADY_CHECKED_OUT",
    "CHECKOUT_IN_PROGRESS",
    "CROSS_SITE",
    "OPERATION_TIMEOUT",
    "PRECONDITION_FAILED",
)
_BODY: Final = ("PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_USER: Final = {"name": "userId", "in": "path", "required": True, "schema": _ID}
_PRODUCT: Final = {"name": "productId", "in": "path", "required": True, "schema": _ID}
_ORDER_ID: Final = {"name": "orderId", "in": "path", "required": True, "schema": _ID}
_LIMIT: Final = {
    "name": "limit",
    "in": "query",
    "required": False,
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
}
_AFTER_ORDER: Final = {
    "name": "after",
    "in": "query",
    "required": False,
    "description": "The `next` of the page before: those that are older.",
    "schema": _ID,
}
_IF_MATCH: Final = {"name": "If-Match", "in": "header", "required": False, "schema": _TEXT}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {name: {"description": description, "schema": schema}}


_CORRELATED: Final = _header("X-Correlation-Id", "The request's, or a new one; it is in all its log lines.", _TEXT)
_TAGGED: Final = _header("ETag", "What is in the cart: for `If-Match`.", _TEXT)
_REPLAYED: Final = _header("Idempotent-Replayed", "`true` if this is the first answer again.", _TEXT)
_AFTER: Final = _header("Retry-After", "Seconds to wait before sending the same request again.", _COUNT)
_LATER: Final = {error.code for error in CartError.__subclasses__() if error.retry_after_seconds is not None}


def _operation(
    summary: str,
    answer: str | None,
    *codes: str,
    parameters: tuple[dict[str, Any], ...] = (),
    body: str | None = None,
    is_body_required: bool = True,
    description: str = "",
    headers: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What a route is declared with."""
    statuses: dict[int, list[str]] = {}
    for code in sorted({*codes, *_ALWAYS}, key=lambda code: STATUSES[code]):
        statuses.setdefault(STATUSES[code], []).append(code)
    responses: dict[int | str, Any] = {
        status: {
            "description": ", ".join(named),
            "headers": _CORRELATED | (_AFTER if _LATER.intersection(named) else {}),
            "content": {MEDIA_TYPE: {"schema": _ref("Problem")}},
        }
        for status, named in statuses.items()
    }
    success: dict[str, Any] = {"description": "Done", "headers": _CORRELATED | (headers or {})}
    if answer is not None:
        success["content"] = {"application/json": {"schema": _ref(answer)}}
    if answer in ("Cart", "Summary"):
        success["headers"] |= _TAGGED
    extra: dict[str, Any] = {"parameters": list(parameters)}
    if body is not None:
        extra["requestBody"] = {
            "required": is_body_required,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    return {
        "summary": summary,
        "description": description,
        "status_code": 204 if answer is None else 200,
        "response_model": None,
        "responses": {204 if answer is None else 200: success, **responses},
        "openapi_extra": extra,
    }


GET_CART: Final = _operation(
    "The cart of a user; a new one if there is none", "Cart", "OPERATION_TIMEOUT", parameters=(_USER,)
)
DELETE_CART: Final = _operation("Remove a cart", None, "CART_NOT_FOUND", *_CHANGES, parameters=(_USER, _IF_MATCH))
GET_SUMMARY: Final = _operation(
    "What a cart comes to",
    "Summary",
    "CART_NOT_FOUND",
    parameters=(_USER,),
    description="Unlike reading the cart, this begins none.",
)
PUT_PROVINCE: Final = _operation(
    "Say which province's taxes apply; null for none",
    "Cart",
    *_CHANGES,
    *_BODY,
    parameters=(_USER, _IF_MATCH),
    body="NewProvince",
)
POST_ITEM: Final = _operation(
    "Add an item",
    "Cart",
    "IDEMPOTENCY_KEY_IN_USE",
    "IDEMPOTENCY_KEY_REUSED",
    "IDEMPOTENCY_OUTCOME_UNKNOWN",
    *_CHANGES,
    *_BODY,
    parameters=(_USER, _IF_MATCH, _KEY),
    body="NewItem",
    description="A product that is in the cart already adds up, and all of it has the name and price of this request. "
    f"At most {MAX_ITEMS} products are in a cart, and {MAX_QUANTITY} of each. With an Idempotency-Key a repeat adds "
    "nothing.",
    headers=_REPLAYED,
)
PUT_ITEM: Final = _operation(
    "Set the quantity of an item; 0 takes it out",
    "Cart",
    "CART_NOT_FOUND",
    "ITEM_NOT_FOUND",
    *_CHANGES,
    *_BODY,
    parameters=(_USER, _PRODUCT, _IF_MATCH),
    body="NewQuantity",
)
DELETE_ITEM: Final = _operation(
    "Take an item out",
    "Cart",
    "CART_NOT_FOUND",
    "ITEM_NOT_FOUND",
    *_CHANGES,
    parameters=(_USER, _PRODUCT, _IF_MATCH),
)
POST_CHECKOUT: Final = _operation(
    "Order the cart, at most once",
    "CheckoutResult",
    "AMBIGUOUS_CHECKOUT",
    "CART_NOT_FOUND",
    "CHECKOUT_FAILED",
    "CHECKOUT_IN_PROGRESS",
    "CHECKOUT_UNKNOWN",
    "CROSS_SITE",
    "EMPTY_CART",
    "EXTERNAL_PROVIDER_ERROR",
    "OPERATION_TIMEOUT",
    "PRECONDITION_FAILED",
    *_BODY,
    parameters=(_USER, _IF_MATCH, _KEY),
    body="NewCheckout",
    is_body_required=False,
    description="May be repeated at any time: there is one order at most. An Idempotency-Key belongs to the cart that "
    "it was first used for. A bare checkout of another cart within ten minutes of an order is refused with "
    "AMBIGUOUS_CHECKOUT, because it may be a repeat that was delayed.",
)
GET_ORDERS: Final = _operation(
    "The orders of a user, the newest first",
    "Orders",
    parameters=(_USER, _LIMIT, _AFTER_ORDER),
    description="For whoever only reads: a cart that was ordered is gone, and its order is the first one here.",
)
GET_ORDER: Final = _operation("An order", "Order", "ORDER_NOT_FOUND", parameters=(_ORDER_ID,))
GET_HEALTH: Final = _operation(
    "Whether the platform answers, asked every few seconds",
    "Health",
    description="degraded: carts work as usual, checkouts have to wait.",
)


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title="Telecom cart", version=__version__, description=DESCRIPTION.strip(), routes=app.routes
            )
            made.setdefault("components", {})["schemas"] = SCHEMAS
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
