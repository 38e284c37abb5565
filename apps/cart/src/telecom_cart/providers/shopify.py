"""Shopify over the Storefront API, in GraphQL.

There is no session: who knows the id of a cart has it, so the id contains a secret and is shown to nobody. Carts cannot
be deleted: a closed one is marked as closed by an attribute, and has no lines, so that there is nothing to order. An
order carries our reference as an attribute of its cart. It is looked up by the Admin API, in one of two ways:

    strong      by `source_identifier`, which we give with the payment
    eventual    by the token of the cart, in the index of orders, which lags

Nothing here makes an order but the one cartSubmitForCompletion of `checkout`, through `Once`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from telecom_cart.model import Context
from telecom_cart.provider import (
    Absent,
    Basket,
    Closed,
    ContextGone,
    Found,
    Health,
    Line,
    Lookup,
    PlacedOrder,
    ProviderError,
    Refused,
    Uncertain,
    Unreachable,
    Unsure,
)
from telecom_cart.providers import shopify_documents as documents
from telecom_cart.providers.calling import (
    EXPONENTS,
    Answer,
    Direct,
    Once,
    Patience,
    Request,
    document_of,
    minor_units,
    shown,
)

REFERENCE = "c_orderRef"
PRICE = "c_unitPriceMinor"
CLOSED_MARK = "c_closed"
VARIANT = "gid://shopify/ProductVariant/"
COUNTRIES = {"CAD": "CA", "EUR": "IE", "GBP": "GB", "USD": "US"}
"""Shopify chooses the currency by the country of the buyer."""
MOST_PAGES = 4
CLOSING_TURNS = 3


@dataclass(frozen=True)
class ShopifySettings:
    base_url: str
    storefront_token: str = field(repr=False)
    admin_token: str = field(repr=False)
    lookup: Lookup
    version: str = "2026-04"
    timeout_seconds: float = 10.0


class ShopifyProvider:
    name = "shopify"

    def __init__(self, settings: ShopifySettings, once: Once, *, patience: Patience | None = None) -> None:
        self.settings = settings
        self.lookup = settings.lookup
        self.timeout_seconds = settings.timeout_seconds
        self._once = once
        self._direct = Direct(patience)

    async def open_session(self) -> str:
        return ""

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        if currency not in COUNTRIES:
            raise Refused(f"Shopify sells in {', '.join(COUNTRIES)}, not in {shown(currency)}")
        wanted = {"lines": [_input(line) for line in lines], "buyerIdentity": {"countryCode": COUNTRIES[currency]}}
        # Made twice it would be two carts, of which one is forgotten: that does no harm, but is not repeated here.
        data = await self._ask(documents.CREATE_CART, {"input": wanted}, may_repeat=False)
        cart = _payload(data, "cartCreate").get("cart") or {}
        if not cart.get("id"):
            raise Unreachable("The answer lacks the id of the cart")
        return Context(session, str(cart["id"]))

    async def add_item(self, context: Context, line: Line) -> None:
        cart = await self._read(context)
        present = [each["id"] for each in cart["lines"] if _product(each) == line.product_id]
        if not present and line.quantity:
            lines = {"lines": [_input(line)]}
            await self._change(context, documents.ADD_ITEM, "cartLinesAdd", lines, may_repeat=False)
        elif present:
            first = {"id": present[0], "quantity": line.quantity, "attributes": [_attribute(PRICE, str(line.price))]}
            others = [{"id": each, "quantity": 0} for each in present[1:]]
            await self._change(context, documents.CHANGE_ITEM, "cartLinesUpdate", {"lines": [first, *others]})

    async def remove_item(self, context: Context, product_id: str) -> None:
        cart = await self._read(context)
        ids = [each["id"] for each in cart["lines"] if _product(each) == product_id]
        if ids:
            await self._change(context, documents.REMOVE_ITEM, "cartLinesRemove", {"lineIds": ids})

    async def get_cart(self, context: Context) -> Basket:
        return _basket(await self._read(context))

    async def validate_context(self, context: Context) -> bool:
        cart = (await self._ask(documents.VALIDATE_CONTEXT, {"id": context.basket_id})).get("cart")
        return cart is not None and not _marked(cart)

    async def set_reference(self, context: Context, reference: str) -> None:
        attributes = {"attributes": [_attribute(REFERENCE, reference)]}
        await self._read(context)  # raises, if it was closed
        await self._change(context, documents.SET_REFERENCE, "cartAttributesUpdate", attributes)

    async def checkout(self, context: Context, reference: str) -> PlacedOrder:
        started = time.monotonic()
        try:
            await self._prepare(context, reference)
        except ContextGone as error:
            raise Refused(str(error)) from None
        variables = {"cartId": context.basket_id, "attemptToken": reference}
        request = self._request(documents.SUBMIT, variables)
        answer = await self._once(request, request_id=reference, timeout_seconds=self.timeout_seconds)
        attempt_id = _submitted(answer)
        try:
            return await self._outcome(attempt_id, until=started + self.timeout_seconds)
        except Unreachable as error:
            raise Uncertain(f"An order was asked for, and its outcome not told: {error}") from None

    async def find_order(self, context: Context, reference: str, *, since: int) -> Found | Absent | Unsure:
        strong = self.lookup.lag_seconds == 0
        token = context.shown_id.rpartition("/")[2]
        query = f"source_identifier:{_quoted(reference)}" if strong else f"cart_token:{_quoted(token)}"
        found: list[PlacedOrder] = []
        after: str | None = None
        try:
            for _ in range(MOST_PAGES):
                data = await self._ask(documents.FIND_ORDER, {"query": query, "after": after}, is_admin=True)
                orders = data.get("orders") or {}
                if not isinstance(orders.get("nodes"), list):
                    return Unsure("The list of orders has another form")
                # A filter that Shopify does not know is ignored by it: what counts is the attribute.
                found += [_order(node) for node in orders["nodes"] if _has(node, REFERENCE, reference)]
                if not (orders.get("pageInfo") or {}).get("hasNextPage"):
                    return Found(tuple(found)) if found else Absent()
                after = orders["pageInfo"].get("endCursor")
        except ProviderError as error:
            return Unsure(str(error))
        return Found(tuple(found)) if found else Unsure("There are more orders than can be looked through")

    async def close_cart(self, context: Context) -> Closed:
        """Marked first, so that whoever reads it leaves it alone; then emptied, until it is read as empty."""
        mark = {"attributes": [_attribute(CLOSED_MARK, "yes")]}
        was_open = False
        for _ in range(CLOSING_TURNS):
            try:
                cart = await self._read(context, closed_too=True)
                if _marked(cart) and not cart["lines"]:
                    return Closed.CLOSED if was_open else Closed.GONE
                was_open = True
                if not _marked(cart):
                    await self._change(context, documents.MARK_CLOSED, "cartAttributesUpdate", mark)
                if cart["lines"]:
                    ids = {"lineIds": [each["id"] for each in cart["lines"]]}
                    await self._change(context, documents.EMPTY_CART, "cartLinesRemove", ids)
            except ContextGone:
                # Never `CLOSED`: it may have been ordered between two of these requests.
                return Closed.GONE
        raise Unreachable("The basket is being filled while it is emptied")

    async def health(self) -> Health:
        try:
            await self._ask(documents.HEALTH, {}, tries=1)
        except ProviderError as error:
            return Health(False, str(error))
        return Health(True)

    async def close(self) -> None:
        await self._direct.close()

    async def _prepare(self, context: Context, reference: str) -> None:
        """All that comes before the order, and may be repeated."""
        basket = await self._read(context)
        if not _has(basket, REFERENCE, reference):
            raise Refused("The basket carries another reference")
        amount = {
            "amount": _amount(_basket(basket).subtotal, _basket(basket).currency),
            "currencyCode": _basket(basket).currency,
        }
        payment = {"payment": {"amount": amount, "sourceIdentifier": reference}}
        await self._change(context, documents.PAY, "cartPaymentUpdate", payment)
        payload = await self._change(context, documents.PREPARE, "cartPrepareForCompletion", {})
        result = payload.get("result") or {}
        match result.get("__typename"):
            case "CartStatusReady":
                return
            case "CartStatusNotReady":
                raise Refused(*_reasons(result.get("errors")))
            case _:
                raise Unreachable("The platform wants to prepare the order later")

    async def _outcome(self, attempt_id: str, *, until: float) -> PlacedOrder:
        while True:
            data = await self._ask(documents.POLL, {"attemptId": attempt_id})
            result = data.get("cartCompletionAttempt") or {}
            match result.get("__typename"):
                case "CartCompletionSuccess" if result.get("orderId"):
                    return PlacedOrder(str(result["orderId"]), "created", True)
                case "CartCompletionFailed":
                    raise Refused(*_reasons(result.get("errors")))
                case "CartCompletionProcessing":
                    delay = min(max(float(result.get("pollDelay") or 0) / 1000, 0.01), 1.0)
                case _:
                    raise Uncertain("An order was asked for, and waits for something else")
            if time.monotonic() + delay > until:
                raise Uncertain("An order was asked for, and is still being made")
            await asyncio.sleep(delay)

    async def _read(self, context: Context, *, closed_too: bool = False) -> dict[str, Any]:
        """The cart with all its lines, as a list."""
        lines: list[dict[str, Any]] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            cart = (await self._ask(documents.GET_CART, {"id": context.basket_id, "after": after})).get("cart")
            if cart is None or (_marked(cart) and not closed_too):
                raise ContextGone("There is no such basket")
            page = cart.get("lines") or {}
            lines += page.get("nodes") or []
            if not (page.get("pageInfo") or {}).get("hasNextPage"):
                return {**cart, "lines": lines}
            after = page["pageInfo"].get("endCursor")
        raise Unreachable("The basket has more lines than can be read")

    async def _change(
        self,
        context: Context,
        document: str,
        name: str,
        variables: Mapping[str, object],
        *,
        may_repeat: bool = True,
    ) -> dict[str, Any]:
        asked = {"cartId": context.basket_id, **variables}
        return _payload(await self._ask(document, asked, may_repeat=may_repeat), name)

    async def _ask(
        self,
        document: str,
        variables: Mapping[str, object],
        *,
        may_repeat: bool = True,
        is_admin: bool = False,
        tries: int | None = None,
    ) -> dict[str, Any]:
        request = self._request(document, variables, is_admin=is_admin)
        answer = await self._direct(request, may_repeat=may_repeat, tries=tries)
        got = document_of(answer)
        if answer.status != 200 or got is None:
            raise Unreachable(f"The platform answered {answer.status} without a reason")
        if errors := got.get("errors"):
            if _error_code(errors) in ("THROTTLED", "INTERNAL_SERVER_ERROR"):
                raise Unreachable(f"The platform answered {_error_code(errors)}")
            raise Refused(*_reasons(errors))
        return got.get("data") or {}

    def _request(self, document: str, variables: Mapping[str, object], *, is_admin: bool = False) -> Request:
        root = self.settings.base_url.rstrip("/") + ("/admin" if is_admin else "")
        name = "X-Shopify-Access-Token" if is_admin else "X-Shopify-Storefront-Access-Token"
        token = self.settings.admin_token if is_admin else self.settings.storefront_token
        headers = {name: token, "Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps({"query": document, "variables": variables}).encode()
        return Request("POST", f"{root}/api/{self.settings.version}/graphql.json", headers, body)


def _attribute(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


def _input(line: Line) -> dict[str, object]:
    return {
        "merchandiseId": VARIANT + line.product_id,
        "quantity": line.quantity,
        "attributes": [_attribute(PRICE, str(line.price))],
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _amount(minor: int, currency: str) -> str:
    return str(Decimal(minor).scaleb(-EXPONENTS.get(currency, 2)))


def _has(document: Mapping[str, Any], key: str, value: str) -> bool:
    listed = document.get("attributes") or document.get("customAttributes") or []
    return any(each.get("key") == key and each.get("value") == value for each in listed)


def _marked(cart: Mapping[str, Any]) -> bool:
    return _has(cart, CLOSED_MARK, "yes")


def _product(line: Mapping[str, Any]) -> str:
    return str((line.get("merchandise") or {}).get("id", "")).removeprefix(VARIANT)


def _reasons(errors: object) -> list[str]:
    listed = errors if isinstance(errors, list) else []
    said = [shown(each.get("message") or each.get("code")) for each in listed if isinstance(each, dict)]
    return said or ["The platform said no without a reason"]


def _error_code(errors: object) -> str:
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    return str((first.get("extensions") or {}).get("code", ""))


def _payload(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a mutation answered, if it did what it was asked."""
    payload = data.get(name)
    if not isinstance(payload, dict):
        raise Unreachable(f"The answer lacks {name}")
    if errors := payload.get("userErrors"):
        if any(
            each.get("code") in ("INVALID", "INVALID_ID", "CART_DOES_NOT_EXIST") and _is_id(each) for each in errors
        ):
            raise ContextGone("There is no such basket")
        raise Refused(*_reasons(errors))
    return payload


def _is_id(error: Mapping[str, Any]) -> bool:
    return error.get("field") in (["cartId"], ["id"])


def _basket(cart: Mapping[str, Any]) -> Basket:
    total = (cart.get("cost") or {}).get("subtotalAmount") or {}
    currency = str(total.get("currencyCode", ""))
    subtotal = minor_units(total.get("amount"), currency)
    if subtotal is None:
        raise Refused("The subtotal is not a whole number of minor units")
    lines: dict[tuple[str, int], Line] = {}
    for each in cart["lines"]:
        product_id = _product(each)
        price = minor_units(((each.get("cost") or {}).get("amountPerQuantity") or {}).get("amount"), currency)
        if price is None:
            raise Refused(f"The price of {shown(product_id)} is not a whole number of minor units")
        there = lines.get((product_id, price))
        quantity = int(each["quantity"]) + (there.quantity if there else 0)
        lines[product_id, price] = Line(product_id, quantity, price)
    kept = {each.get("key"): each.get("value") for each in cart.get("attributes") or []}
    return Basket(tuple(lines.values()), subtotal, currency, str(kept.get(REFERENCE) or ""))


def _order(node: Mapping[str, Any]) -> PlacedOrder:
    is_live = not node.get("cancelledAt")
    status = str(node.get("displayFinancialStatus") or "created").lower() if is_live else "cancelled"
    return PlacedOrder(str(node.get("id", "")), status, is_live)


def _submitted(answer: Answer) -> str:
    """The id of the attempt that was accepted. That nothing was ordered is certain only if Shopify says so."""
    if answer.status in (401, 403, 429, 430):
        raise Unreachable(f"The platform answered {answer.status}, and ordered nothing")
    got = document_of(answer) if answer.status == 200 else None
    if got is None:
        raise Uncertain(f"The platform answered {answer.status} to an order")
    if errors := got.get("errors"):
        if _error_code(errors) == "THROTTLED":
            raise Unreachable("The platform wants fewer requests, and ordered nothing")
        raise Uncertain("; ".join(_reasons(errors)))
    payload = (got.get("data") or {}).get("cartSubmitForCompletion") or {}
    result = payload.get("result") or {}
    match result.get("__typename"):
        case "SubmitSuccess" | "SubmitAlreadyAccepted" if result.get("attemptId"):
            return str(result["attemptId"])
        case "SubmitFailed":
            raise Refused(*_reasons(result.get("errors")))
        case "SubmitThrottled":
            raise Unreachable("The platform wants fewer requests, and ordered nothing")
    if payload.get("userErrors"):
        raise Refused(*_reasons(payload["userErrors"]))
    raise Uncertain("The platform's answer to an order cannot be understood")
