"""What Salesforce answers, read into the words of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from telecom_cart.provider import Absent, Basket, ContextGone, Found, Line, PlacedOrder, Refused, Uncertain, Unreachable
from telecom_cart.providers.answers import (
    Unreadable,
    code_of,
    document_of,
    minor_units,
    objects,
    optional_text,
    shown,
    text,
    understood,
    whole,
)
from telecom_cart.providers.http_calls import Answer

REFERENCE = "c_orderRef"
PRICE = "c_unitPriceMinor"
PASSING = (408, 425, 429)
NO_ORDER = ("failed", "cancelled")


def item_of(line: Line) -> dict[str, object]:
    return {"productId": line.product_id, "quantity": line.quantity, PRICE: line.price}


@understood()
def checked(answer: Answer) -> dict[str, Any]:
    """The document of a good answer. Everything else is an error of the contract."""
    document = document_of(answer) if answer.body else {}
    if 200 <= answer.status < 300 and document is not None:
        return document
    if not document or "type" not in document:
        raise Unreachable(f"The platform answered {answer.status} without a reason")
    if answer.status in PASSING:
        raise Unreachable(f"The platform answered {answer.status}", told=_refusal(document).told)
    if is_problem(document, answer, 404, "basket-not-found"):
        raise ContextGone("There is no such basket")
    raise _refusal(document)


@understood()
def is_answer(answer: Answer, status: int, code: str) -> bool:
    """Whether this is an error of this kind."""
    return is_problem(document_of(answer) or {}, answer, status, code)


def is_problem(document: Mapping[str, Any], answer: Answer, status: int, code: str) -> bool:
    return answer.status == status and _code(document) == code


@understood()
def basket_id_of(answer: Answer) -> str:
    """Of the basket that was made, or of the one that the customer has already."""
    if is_answer(answer, 400, "customer-baskets-quota-exceeded"):
        named = (document_of(answer) or {}).get("basketIds")
        ids = named if isinstance(named, list) else named.split(",") if isinstance(named, str) else []
        if ids and ids[0]:
            return text(ids[0].strip())
    return text(checked(answer)["basketId"])


@understood()
def same_basket(document: Mapping[str, Any], basket_id: str) -> dict[str, Any]:
    if document["basketId"] != basket_id:
        raise Unreadable("Expected the basket that was asked for")
    return dict(document)


@understood()
def item_ids(basket: Mapping[str, Any], product_id: str) -> list[str]:
    return [text(item["itemId"]) for item in _items(basket) if item.get("productId") == product_id]


@understood()
def basket_of(document: Mapping[str, Any]) -> Basket:
    currency = text(document["currency"])
    lines: dict[tuple[str, int], Line] = {}
    for item in _items(document):
        product_id = text(item["productId"])
        price = minor_units(item.get("basePrice"), currency)
        if price is None:
            raise Refused(f"The price of {product_id} is not a whole number of minor units")
        there = lines.get((product_id, price))
        quantity = whole(item["quantity"]) + (there.quantity if there else 0)
        lines[product_id, price] = Line(product_id, quantity, price)
    subtotal = minor_units(document.get("productSubTotal") or 0, currency)
    if subtotal is None:
        raise Refused("The subtotal is not a whole number of minor units")
    return Basket(tuple(lines.values()), subtotal, currency, optional_text(document.get(REFERENCE)))


@understood()
def found_by_number(answer: Answer, reference: str) -> Found | Absent:
    """The order that has our reference as its number, and carries it as well."""
    if is_answer(answer, 404, "order-not-found"):
        return Absent()
    document = checked(answer)
    order = order_of(document)
    if order.number != reference or document.get(REFERENCE) != reference:
        raise Unreachable("The platform answered with another order than was asked for")
    return Found((order,))


@understood()
def orders_with(reference: str, rows: list[dict[str, Any]]) -> list[PlacedOrder]:
    return [order_of(row) for row in rows if _reference(row) == reference]


@understood()
def page_of(answer: Answer, *, offset: int, size: int) -> tuple[list[dict[str, Any]], bool]:
    """Some orders, and whether they are the last. A page that is shorter than it has to be says nothing of the rest."""
    document = checked(answer)
    rows = objects(document["data"])
    is_last = len(rows) < size
    if is_last and "total" in document and whole(document["total"]) > offset + len(rows):
        raise Unreadable("Expected as many orders as there are")
    return rows, is_last


@understood()
def made_at(row: Mapping[str, Any]) -> int:
    return round(datetime.fromisoformat(text(row["creationDate"])).timestamp() * 1000)


def order_of(document: Mapping[str, Any]) -> PlacedOrder:
    status, currency = text(document["status"]), optional_text(document.get("currency"))
    subtotal = minor_units(document.get("productSubTotal"), currency)
    is_findable = bool(_reference(document))
    return PlacedOrder(text(document["orderNo"]), status, status not in NO_ORDER, subtotal, is_findable, currency)


def placed(answer: Answer, reference: str) -> PlacedOrder:
    """What became of the request that makes an order. It is refused only if the platform says so with a reason."""
    if _is_put_off(answer):
        raise Refused(f"The platform answered {answer.status}, and wants another token or fewer requests")
    with understood(Uncertain):
        document = document_of(answer)
        if answer.status == 200 and document is not None:
            if _reference(document) not in ("", reference):
                raise Unreadable("Expected the order that was asked for")
            return order_of(document)
        if document is not None and answer.status in (400, 403, 404, 409, 422) and _is_refusal(document):
            raise _refusal(document)
    raise Uncertain(f"The platform answered {answer.status} to an order")


@understood(Uncertain)
def _is_put_off(answer: Answer) -> bool:
    """It wants another token, or fewer requests."""
    document = document_of(answer)
    return answer.status in (401, 429) and document is not None and _is_refusal(document)


def _is_refusal(document: Mapping[str, Any]) -> bool:
    return bool(_code(document)) and "orderNo" not in document


def _refusal(problem: Mapping[str, Any]) -> Refused:
    """Users are told its code, operators what it says."""
    code = code_of(_code(problem))
    reason = f"The platform refused it: {code}" if code else "The platform refused it"
    return Refused(reason, told=shown(problem.get("detail")) or shown(problem.get("title")))


def _code(problem: Mapping[str, Any]) -> str:
    return text(problem["type"]).rpartition("/")[2] if "type" in problem else ""


def _items(basket: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A basket without items may lack the list."""
    listed = basket.get("productItems")
    return [] if listed is None else objects(listed)


def _reference(order: Mapping[str, Any]) -> str:
    carried = order.get(REFERENCE)
    if carried is not None and not isinstance(carried, str):
        raise Unreadable("Expected a reference that is a text")
    return carried or ""
