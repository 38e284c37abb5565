"""What Shopify answers, read into the words of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from telecom_cart.provider import Basket, ContextGone, Line, PlacedOrder, Refused, Uncertain, Unreachable
from telecom_cart.providers.calling import Answer, throttled_for
from telecom_cart.providers.reading import (
    EXPONENTS,
    Unreadable,
    code_of,
    document_of,
    minor_units,
    objects,
    optional_text,
    shown,
    text,
    truth,
    understood,
    whole,
)

REFERENCE = "c_orderRef"
PRICE = "c_unitPriceMinor"
CLOSED_MARK = "c_closed"
VARIANT = "gid://shopify/ProductVariant/"
NO_CART = ("INVALID", "INVALID_ID", "CART_DOES_NOT_EXIST")
TRANSIENT = ("INTERNAL_SERVER_ERROR", "SERVICE_UNAVAILABLE", "THROTTLED", "TIMEOUT")
MOST_ERRORS = 5
"""That are told of one answer."""


class Untold(Uncertain):
    """An order was requested, and what the platform answered about its outcome says nothing."""


def attribute(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


@understood()
def attributes_with(cart: Mapping[str, Any], key: str, value: str) -> list[dict[str, str]]:
    """The attributes of a cart, with this one. They are replaced as a whole: what is left out is lost."""
    others = [attribute(name, given) for name, given in _attributes(cart["attributes"]).items() if name != key]
    return [*others, attribute(key, value)]


def line_input(line: Line) -> dict[str, object]:
    return {
        "merchandiseId": VARIANT + line.product_id,
        "quantity": line.quantity,
        "attributes": [attribute(PRICE, str(line.price))],
    }


def quoted(wanted: str) -> str:
    return '"' + wanted.replace("\\", "\\\\").replace('"', '\\"') + '"'


def amount_of(minor: int, currency: str) -> str:
    return str(Decimal(minor).scaleb(-EXPONENTS.get(currency, 2)))


@understood()
def cart_in(data: Mapping[str, Any], cart_id: str) -> dict[str, Any] | None:
    """None: Shopify says that there is no such cart. To say nothing is not to say that."""
    cart = data["cart"]
    if cart is not None and cart["id"] != cart_id:
        raise Unreadable("Expected the cart that was asked for")
    return None if cart is None else dict(cart)


@understood()
def page_of(connection: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Some nodes, and where the next ones begin. None: these are the last."""
    nodes, page = objects(connection["nodes"]), connection["pageInfo"]
    return nodes, text(page["endCursor"]) if truth(page["hasNextPage"]) else None


@understood()
def orders_with(reference: str, nodes: list[dict[str, Any]]) -> list[PlacedOrder]:
    """A filter that Shopify does not know is ignored by it: what counts is the attribute."""
    return [order_of(node) for node in nodes if _attributes(node["customAttributes"]).get(REFERENCE) == reference]


@understood()
def has(cart: Mapping[str, Any], key: str, value: str) -> bool:
    return _attributes(cart["attributes"]).get(key) == value


def is_marked(cart: Mapping[str, Any]) -> bool:
    return has(cart, CLOSED_MARK, "yes")


@understood()
def can_be_ordered(cart: Mapping[str, Any]) -> bool:
    """Whoever reads a mark leaves the cart alone, but an order that is under way does not read it: only a cart
    without lines cannot be ordered."""
    return not is_marked(cart) or bool(objects(cart["lines"]["nodes"]))


@understood()
def line_ids(cart: Mapping[str, Any], product_id: str | None = None) -> list[str]:
    """Of a product, or of all."""
    return [text(each["id"]) for each in cart["lines"] if product_id is None or product_of(each) == product_id]


def product_of(line: Mapping[str, Any]) -> str:
    """What is no variant, such as a gift card, is a product that nobody put in, by the id of its line."""
    return text(line["merchandise"].get("id") or line["id"]).removeprefix(VARIANT)


@understood()
def reference_of(node: Mapping[str, Any]) -> str:
    """What an order carries. Empty: nothing."""
    return _attributes(node["customAttributes"]).get(REFERENCE, "")


def refusal(errors: object) -> Refused:
    """What Shopify will not do, for these errors. Users are told their codes, operators what they say."""
    listed = objects(errors)
    codes = dict.fromkeys(filter(None, (code_of(each.get("code")) or error_code(each) for each in listed)))
    told = "; ".join(filter(None, (shown(each.get("message")) for each in listed[:MOST_ERRORS])))
    reasons = [f"The platform refused it: {code}" for code in list(codes)[:MOST_ERRORS]]
    return Refused(*(reasons or ["The platform refused it"]), told=told)


def throttled(answer: Answer) -> float | None:
    """Shopify says it with 200, and not for how long; its points come back by the second."""
    if b"THROTTLED" in answer.body and "THROTTLED" in error_codes((document_of(answer) or {}).get("errors")):
        return 1.0
    return throttled_for(answer)


def error_code(error: object) -> str:
    """Empty, if it has none."""
    extensions = error.get("extensions") if isinstance(error, dict) else None
    return code_of(extensions.get("code")) if isinstance(extensions, dict) else ""


def error_codes(errors: object) -> list[str]:
    """Of all errors that have one."""
    return list(filter(None, map(error_code, errors))) if isinstance(errors, list) else []


@understood()
def data_of(answer: Answer) -> dict[str, Any]:
    """What an operation answered, if nothing went wrong."""
    got = document_of(answer)
    if answer.status != 200 or got is None:
        raise Unreachable(f"The platform answered {answer.status} without a reason")
    if errors := got.get("errors"):
        refused = refusal(errors)
        passing = next((code for code in error_codes(errors) if code in TRANSIENT), "")
        if passing or not error_codes(errors):
            # It says nothing about what was asked for: that would be userErrors.
            raise Unreachable(f"The platform answered {passing or 'errors without a code'}", told=refused.told)
        raise refused
    data = got.get("data")
    if not isinstance(data, dict):
        raise Unreadable("Expected data")
    return data


@understood()
def payload_of(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a mutation answered, if it did what it was asked."""
    payload = data[name]
    if errors := objects(payload["userErrors"]):
        if any(each.get("code") in NO_CART and _is_id(each) for each in errors):
            raise ContextGone("There is no such basket")
        raise refusal(errors)
    return dict(payload)


def _is_id(error: Mapping[str, Any]) -> bool:
    return error.get("field") in (["cartId"], ["id"])


@understood()
def created_in(data: Mapping[str, Any]) -> str:
    """The id of the cart that was made."""
    payload = data["cartCreate"]
    if errors := objects(payload["userErrors"]):
        raise refusal(errors)  # also of an id: there is no basket yet that could be gone
    return text(payload["cart"]["id"])


@understood()
def check_ready(payload: Mapping[str, Any]) -> None:
    match payload["result"]["__typename"]:
        case "CartStatusReady":
            return
        case "CartStatusNotReady":
            raise refusal(payload["result"]["errors"])
        case _:
            raise Unreachable("The platform wants to prepare the order later")


@understood()
def basket_of(cart: Mapping[str, Any]) -> Basket:
    total = cart["cost"]["subtotalAmount"]
    currency = text(total["currencyCode"])
    subtotal = minor_units(total["amount"], currency)
    if subtotal is None:
        raise Refused("The subtotal is not a whole number of minor units")
    lines: dict[tuple[str, int], Line] = {}
    for each in cart["lines"]:
        product_id = product_of(each)
        price = minor_units(each["cost"]["amountPerQuantity"]["amount"], currency)
        if price is None:
            raise Refused(f"The price of {product_id} is not a whole number of minor units")
        there = lines.get((product_id, price))
        quantity = whole(each["quantity"]) + (there.quantity if there else 0)
        lines[product_id, price] = Line(product_id, quantity, price)
    reference = optional_text(_attributes(cart["attributes"]).get(REFERENCE))
    return Basket(tuple(lines.values()), subtotal, currency, reference)


def order_of(node: Mapping[str, Any]) -> PlacedOrder:
    is_live = not optional_text(node["cancelledAt"])
    status = (optional_text(node.get("displayFinancialStatus")) or "created").lower() if is_live else "cancelled"
    money = (node.get("subtotalPriceSet") or {}).get("presentmentMoney") or {}
    currency = optional_text(money.get("currencyCode"))
    subtotal = minor_units(money.get("amount"), currency)
    return PlacedOrder(text(node["id"]), status, is_live, subtotal, currency=currency)


def submitted(answer: Answer) -> str:
    """The ticket: the id of the attempt that was accepted. That nothing was ordered is refused only if Shopify says
    so."""
    if _is_put_off(answer):
        raise Refused("The platform wants another token or fewer requests")
    with understood(Uncertain):
        got = document_of(answer) if answer.status == 200 else None
        if got is None or got.get("errors"):
            raise Uncertain(f"The platform answered {answer.status} to an order, with errors or without a form")
        payload = got["data"]["cartSubmitForCompletion"]
        result = payload["result"]
        if result is None:
            if errors := objects(payload["userErrors"]):
                raise refusal(errors)
            raise Unreadable("Expected a result, or errors")
        match result["__typename"]:
            case "SubmitSuccess" | "SubmitAlreadyAccepted":
                return text(result["attemptId"])
            case "SubmitFailed" if "attemptId" not in result:
                raise refusal(result["errors"])
        raise Unreadable("Expected a result that is known")


@understood(Uncertain)
def _is_put_off(answer: Answer) -> bool:
    """It says, and says nothing else, that it has not looked at the order."""
    got = document_of(answer) or {}
    payload = (got.get("data") or {}).get("cartSubmitForCompletion") or {}
    result = payload.get("result") or {}
    if result:
        return answer.status == 200 and result["__typename"] == "SubmitThrottled" and "attemptId" not in result
    if not got.get("errors"):
        return False
    is_throttled = answer.status == 200 and "THROTTLED" in error_codes(got["errors"])
    return is_throttled or answer.status in (401, 403, 429, 430)


@understood(Uncertain)
def ended(data: Mapping[str, Any]) -> str | float:
    """What became of an attempt: the id of its order, or the seconds after which to ask again."""
    attempt = data["cartCompletionAttempt"]
    if attempt is None:
        raise Untold("An order was accepted, and its outcome is no longer available")
    match attempt["__typename"]:
        case "CartCompletionSuccess":
            return text(attempt["orderId"])
        case "CartCompletionFailed":
            raise refusal(attempt["errors"])
        case "CartCompletionProcessing":
            return min(max(whole(attempt["pollDelay"]) / 1000, 0.01), 1.0)
    raise Untold("An order was asked for, and waits for something else")


def _attributes(listed: object) -> dict[str, str]:
    return {each["key"]: each["value"] or "" for each in objects(listed)}
