"""What Shopify answers, read into the words of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from telecom_cart.provider import Basket, ContextGone, Line, PlacedOrder, Refused, Uncertain, Unreachable
from telecom_cart.providers.calling import (
    EXPONENTS,
    Answer,
    document_of,
    minor_units,
    shown,
    throttled_for,
    understood,
)

REFERENCE = "c_orderRef"
PRICE = "c_unitPriceMinor"
CLOSED_MARK = "c_closed"
VARIANT = "gid://shopify/ProductVariant/"


def attribute(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


@understood()
def attributes_with(cart: Mapping[str, Any], key: str, value: str) -> list[dict[str, str]]:
    """The attributes of a cart, with this one. They are replaced as a whole: what is left out is lost."""
    others = [attribute(str(each["key"]), str(each["value"])) for each in cart.get("attributes") or []]
    return [*(each for each in others if each["key"] != key), attribute(key, value)]


def line_input(line: Line) -> dict[str, object]:
    return {
        "merchandiseId": VARIANT + line.product_id,
        "quantity": line.quantity,
        "attributes": [attribute(PRICE, str(line.price))],
    }


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def amount_of(minor: int, currency: str) -> str:
    return str(Decimal(minor).scaleb(-EXPONENTS.get(currency, 2)))


def has(document: Mapping[str, Any], key: str, value: str) -> bool:
    listed = document.get("attributes") or document.get("customAttributes") or []
    return any(each.get("key") == key and each.get("value") == value for each in listed)


@understood()
def is_marked(cart: Mapping[str, Any]) -> bool:
    return has(cart, CLOSED_MARK, "yes")


@understood()
def can_be_ordered(cart: Mapping[str, Any]) -> bool:
    """Whoever reads a mark leaves the cart alone, but an order that is under way does not read it: only a cart
    without lines cannot be ordered."""
    return not is_marked(cart) or bool(cart["lines"]["nodes"])


@understood()
def line_ids(cart: Mapping[str, Any], product_id: str | None = None) -> list[str]:
    """Of a product, or of all."""
    return [str(each["id"]) for each in cart["lines"] if product_id is None or product_of(each) == product_id]


def product_of(line: Mapping[str, Any]) -> str:
    return str((line.get("merchandise") or {}).get("id", "")).removeprefix(VARIANT)


def reasons_of(errors: object) -> list[str]:
    listed = errors if isinstance(errors, list) else []
    said = [shown(each.get("message") or each.get("code")) for each in listed if isinstance(each, dict)]
    return said or ["The platform said no without a reason"]


def throttled(answer: Answer) -> float | None:
    """Shopify says it with 200, and not for how long; its points come back by the second."""
    if b"THROTTLED" in answer.body and error_code((document_of(answer) or {}).get("errors")) == "THROTTLED":
        return 1.0
    return throttled_for(answer)


def error_code(errors: object) -> str:
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    return str((first.get("extensions") or {}).get("code", ""))


@understood()
def payload_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a mutation answered, if it did what it was asked."""
    payload = data.get(name)
    if not isinstance(payload, dict):
        raise Unreachable(f"The answer lacks {name}")
    if errors := payload.get("userErrors"):
        if any(
            each.get("code") in ("INVALID", "INVALID_ID", "CART_DOES_NOT_EXIST") and _is_id(each) for each in errors
        ):
            raise ContextGone("There is no such basket")
        raise Refused(*reasons_of(errors))
    return payload


def _is_id(error: Mapping[str, Any]) -> bool:
    return error.get("field") in (["cartId"], ["id"])


@understood()
def basket_of(cart: Mapping[str, Any]) -> Basket:
    total = (cart.get("cost") or {}).get("subtotalAmount") or {}
    currency = str(total.get("currencyCode", ""))
    subtotal = minor_units(total.get("amount"), currency)
    if subtotal is None:
        raise Refused("The subtotal is not a whole number of minor units")
    lines: dict[tuple[str, int], Line] = {}
    for each in cart["lines"]:
        product_id = product_of(each)
        price = minor_units(((each.get("cost") or {}).get("amountPerQuantity") or {}).get("amount"), currency)
        if price is None:
            raise Refused(f"The price of {shown(product_id)} is not a whole number of minor units")
        there = lines.get((product_id, price))
        quantity = int(each["quantity"]) + (there.quantity if there else 0)
        lines[product_id, price] = Line(product_id, quantity, price)
    kept = {each.get("key"): each.get("value") for each in cart.get("attributes") or []}
    return Basket(tuple(lines.values()), subtotal, currency, str(kept.get(REFERENCE) or ""))


def order_of(node: Mapping[str, Any]) -> PlacedOrder:
    is_live = not node.get("cancelledAt")
    status = str(node.get("displayFinancialStatus") or "created").lower() if is_live else "cancelled"
    money = (node.get("subtotalPriceSet") or {}).get("presentmentMoney") or {}
    subtotal = minor_units(money.get("amount"), str(money.get("currencyCode", "")))
    return PlacedOrder(str(node.get("id", "")), status, is_live, subtotal)


@understood(Uncertain)
def submitted(answer: Answer) -> str:
    """The id of the attempt that was accepted. That nothing was ordered is certain only if Shopify says so."""
    if answer.status in (401, 403, 429, 430):
        raise Unreachable(f"The platform answered {answer.status}, and ordered nothing")
    got = document_of(answer) if answer.status == 200 else None
    if got is None:
        raise Uncertain(f"The platform answered {answer.status} to an order")
    if errors := got.get("errors"):
        if error_code(errors) == "THROTTLED":
            raise Unreachable("The platform wants fewer requests, and ordered nothing")
        raise Uncertain("; ".join(reasons_of(errors)))
    payload = (got.get("data") or {}).get("cartSubmitForCompletion") or {}
    result = payload.get("result") or {}
    match result.get("__typename"):
        case "SubmitSuccess" | "SubmitAlreadyAccepted" if result.get("attemptId"):
            return str(result["attemptId"])
        case "SubmitFailed":
            raise Refused(*reasons_of(result.get("errors")))
        case "SubmitThrottled":
            raise Unreachable("The platform wants fewer requests, and ordered nothing")
    if payload.get("userErrors"):
        raise Refused(*reasons_of(payload["userErrors"]))
    raise Uncertain("The platform's answer to an order cannot be understood")
