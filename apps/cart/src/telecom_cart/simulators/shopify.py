"""Shopify, simulated: the Storefront API's carts, and the Admin API's orders, in GraphQL.

It does not parse GraphQL: a request is known by the name of its operation and its first field, arguments are taken from
the variables of the same names, and objects are answered whole, whatever was selected of them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telecom_cart.provider import Line
from telecom_cart.providers.platform import StoredBasket, StoredOrder
from telecom_cart.simulators.simulation import Reply, Simulation

CART, ORDER, VARIANT, LINE = (f"gid://shopify/{kind}/" for kind in ("Cart", "Order", "ProductVariant", "CartLine"))
CURRENCIES = {"CA": "CAD", "GB": "GBP", "IE": "EUR", "US": "USD"}
POLL_DELAY_MS = 20
NO_CART = {"code": "INVALID", "field": ["cartId"], "message": "The specified cart does not exist."}


class Wrong(Exception):
    """A mutation that is answered with userErrors."""

    def __init__(self, error: Mapping[str, object]) -> None:
        self.error = error


@dataclass
class CompletionAttempt:
    token: str
    order: str = ""
    """Its number. Empty: it is being made, as the platform's ticket of the same id says."""
    polls: int = 0


class ShopifySimulation(Simulation):
    name = "shopify"
    extra_verbs = ("prepare_checkout", "pay_checkout", "checkout_result", "get_order", "health_of_orders")

    def reset(self) -> None:
        super().reset()
        self.keys: dict[str, str] = {}
        self.attempts: dict[str, CompletionAttempt] = {}

    def throttled(self) -> Reply:
        return errors("THROTTLED", "Throttled")

    def failed(self, status: int) -> Reply:
        return Reply(status, {"errors": "Something went wrong"}, effect=str(status))

    def refused(self) -> Reply:
        wrong = {"code": "ERROR", "field": None, "message": "It cannot be done again"}
        payload = {"result": None, "cart": None, "userErrors": [wrong]}
        return Reply(200, {"data": {"cartSubmitForCompletion": payload}}, effect="refused")

    def platform_id(self, basket_id: str) -> str:
        return basket_id.partition("?")[0].removeprefix(CART)

    def acts(self) -> dict[str, Callable[[dict[str, Any]], object]]:
        return {
            "shop": lambda _: {"name": "Simulated shop"},
            "cart": self.cart,
            "cartCreate": self.create,
            "cartLinesAdd": lambda given: self._changed(given, self._add),
            "cartLinesUpdate": lambda given: self._changed(given, self._update),
            "cartLinesRemove": lambda given: self._changed(given, self._remove),
            "cartAttributesUpdate": lambda given: self._changed(given, self._attributes),
            "cartPaymentUpdate": lambda given: self._changed(given, lambda basket, _: None),
            "cartPrepareForCompletion": self.prepare,
            "cartSubmitForCompletion": self.submit,
            "cartCompletionAttempt": self.poll,
            "order": self.order,
            "orders": self.orders,
        }

    def cart(self, given: Mapping[str, Any]) -> object:
        basket = self._basket(given.get("id"))
        return None if basket is None else self._shown(basket, after=int(given.get("after") or 0))

    def create(self, given: Mapping[str, Any]) -> object:
        wanted = given["input"]
        country = (wanted.get("buyerIdentity") or {}).get("countryCode", "CA")
        basket = self.platform.create("", CURRENCIES.get(country, "CAD"))
        self.keys[basket.id] = secrets.token_hex(16)
        for line in wanted.get("lines") or []:
            self.platform.add_line(basket, _line(line))
        return {"cart": self._shown(basket), "userErrors": [], "warnings": []}

    def prepare(self, given: Mapping[str, Any]) -> object:
        basket = self._there(given)
        if self.is_strict or not basket.lines:
            missing = "PAYMENTS_METHOD_REQUIRED" if basket.lines else "MERCHANDISE_NOT_ENOUGH_STOCK"
            wrong = {"code": missing, "message": f"The cart {self._id(basket)} cannot be completed"}
            return {"result": {"__typename": "CartStatusNotReady", "errors": [wrong]}, "userErrors": []}
        return {"result": {"__typename": "CartStatusReady", "cart": self._shown(basket)}, "userErrors": []}

    def submit(
        self, given: Mapping[str, Any], *, status: str = "created", seconds: float | None = None
    ) -> dict[str, object]:
        """`seconds`: until then the order is being made."""
        token = str(given["attemptToken"])
        for id, attempt in self.attempts.items():
            if attempt.token == token:
                return {"result": {"__typename": "SubmitAlreadyAccepted", "attemptId": id}, "userErrors": []}
        basket = self._there(given)
        accepted = self._accepted(basket, status, seconds) if basket.lines else None
        if accepted is None:
            wrong = {"code": "ERROR", "message": f"The cart {self._id(basket)} cannot be ordered"}
            return {"result": {"__typename": "SubmitFailed", "errors": [wrong]}, "userErrors": []}
        ticket, number = accepted
        self.attempts[ticket] = CompletionAttempt(token, number)
        return {"result": {"__typename": "SubmitSuccess", "attemptId": ticket, "redirectUrl": ""}, "userErrors": []}

    def _accepted(self, basket: StoredBasket, status: str, seconds: float | None) -> tuple[str, str] | None:
        """The id of an attempt, and the number of the order if it was made at once. None: it cannot be ordered."""
        if seconds is not None:
            ticket = self.platform.accept(basket.id, seconds)
            return None if ticket is None else (ticket, "")
        order = self.platform.order(basket.id, status=status)
        return None if order is None or not order.is_live else (self.platform.next_id("a"), order.number)

    def poll(self, given: Mapping[str, Any]) -> object:
        attempt = self.attempts.get(str(given["attemptId"]))
        if attempt is None:
            return None
        attempt.polls += 1
        self.platform.catch_up()
        made = self.platform.tickets.get(str(given["attemptId"]))
        number = made.number if made is not None else attempt.order
        if attempt.polls == 1 or not number:
            return {"__typename": "CartCompletionProcessing", "id": given["attemptId"], "pollDelay": POLL_DELAY_MS}
        return {"__typename": "CartCompletionSuccess", "id": given["attemptId"], "orderId": ORDER + number}

    def orders(self, given: Mapping[str, Any]) -> object:
        """Filters that are not known are ignored, as the real ones are."""
        name, _, quoted = str(given.get("query") or "").partition(":")
        wanted = quoted.strip('"')
        seen = self.platform.searched() if name == "source_identifier" else self.platform.indexed()
        if name == "source_identifier":
            seen = [order for order in seen if order.reference == wanted]
        elif name == "cart_token":
            seen = [order for order in seen if order.basket_id == wanted]
        start = int(given.get("after") or 0)
        return {
            "nodes": [self._shown_order(order) for order in seen[start : start + 50]],
            **_page(start, 50, len(seen)),
        }

    def order(self, given: Mapping[str, Any]) -> object:
        number = str(given["id"]).removeprefix(ORDER)
        return next((self._shown_order(order) for order in self.platform.orders if order.number == number), None)

    def _shown_order(self, order: StoredOrder) -> dict[str, object]:
        carried = [] if self.platform.loses_references else [{"key": "c_orderRef", "value": order.reference}]
        money = {"amount": str(Decimal(order.subtotal).scaleb(-2)), "currencyCode": order.currency}
        return {
            "id": ORDER + order.number,
            "cancelledAt": None if order.is_live else "2026-01-01T00:00:00Z",
            "displayFinancialStatus": "PENDING",
            "customAttributes": carried,
            "subtotalPriceSet": {"presentmentMoney": money},
        }

    def _basket(self, cart_id: object) -> StoredBasket | None:
        basket = self.platform.basket(self.platform_id(str(cart_id)))
        return basket if basket is not None and self._id(basket) == cart_id else None

    def _there(self, given: Mapping[str, Any]) -> StoredBasket:
        basket = self._basket(given.get("cartId"))
        if basket is None:
            raise Wrong(NO_CART)
        return basket

    def _id(self, basket: StoredBasket) -> str:
        return f"{CART}{basket.id}?key={self.keys.setdefault(basket.id, secrets.token_hex(16))}"

    def _changed(self, given: Mapping[str, Any], change: Callable[[StoredBasket, Mapping[str, Any]], None]) -> object:
        basket = self._there(given)
        change(basket, given)
        self.platform.prolong(basket)
        return {"cart": self._shown(basket), "userErrors": [], "warnings": []}

    def _add(self, basket: StoredBasket, given: Mapping[str, Any]) -> None:
        for line in given["lines"]:
            self.platform.add_line(basket, _line(line))

    def _update(self, basket: StoredBasket, given: Mapping[str, Any]) -> None:
        for wanted in given["lines"]:
            id = str(wanted["id"]).removeprefix(LINE)
            there = basket.lines.get(id)
            if there is None:
                raise Wrong({"code": "INVALID_MERCHANDISE_LINE", "field": ["lines"], "message": "No such line"})
            price = _price(wanted.get("attributes"), there.price)
            line = replace(there, quantity=int(wanted.get("quantity", there.quantity)), price=price)
            self.platform.set_line(basket, line, line_id=id)

    def _remove(self, basket: StoredBasket, given: Mapping[str, Any]) -> None:
        for id in given["lineIds"]:
            basket.lines.pop(str(id).removeprefix(LINE), None)

    def _attributes(self, basket: StoredBasket, given: Mapping[str, Any]) -> None:
        kept = {each["key"]: each["value"] for each in given["attributes"]}
        basket.reference = kept.get("c_orderRef", "")
        basket.is_closed = kept.get("c_closed") == "yes"

    def _shown(self, basket: StoredBasket, *, after: int = 0) -> dict[str, object]:
        def money(minor: int) -> dict[str, str]:
            return {"amount": str(Decimal(minor).scaleb(-2)), "currencyCode": basket.currency}

        attributes = {"c_orderRef": basket.reference, "c_closed": "yes" if basket.is_closed else ""}
        lines = [
            {
                "id": LINE + id,
                "quantity": line.quantity,
                "merchandise": {"id": VARIANT + line.product_id},
                "attributes": [{"key": "c_unitPriceMinor", "value": str(basket.lines[id].price)}],
                "cost": {"amountPerQuantity": money(line.price), "totalAmount": money(line.price * line.quantity)},
            }
            for id, line in self.platform.lines(basket).items()
        ]
        return {
            "id": self._id(basket),
            "checkoutUrl": "",
            "attributes": [{"key": key, "value": value} for key, value in attributes.items() if value],
            "cost": {"subtotalAmount": money(self.platform.subtotal(basket))},
            "lines": {"nodes": lines[after : after + 250], **_page(after, 250, len(lines))},
        }


class Endpoint:
    def __init__(self, simulation: ShopifySimulation) -> None:
        self.simulation = simulation

    async def __call__(self, request: Request) -> Response:
        asked = await request.json()
        document, given = str(asked.get("query", "")), dict(asked.get("variables") or {})
        named = re.search(r"(?:query|mutation)\s+(\w+)[^{]*\{\s*(\w+)", document)
        if named is None:
            return errors("GRAPHQL_PARSE_FAILED", "Name your operation").response()
        verb = re.sub(r"(?<!^)(?=[A-Z])", "_", named[1]).lower()
        name = named[2]
        basket_id = self.simulation.platform_id(str(given.get("cartId") or given.get("id") or ""))

        def act(**options: Any) -> Reply:
            acts = self.simulation.acts()
            if name not in acts:
                return errors("undefinedField", f"Field {name!r} does not exist")
            try:
                done = self.simulation.submit(given, **options) if options else acts[name](given)
            except Wrong as wrong:
                payload = {"userErrors": [wrong.error], "cart": None, "result": None}
                return Reply(200, {"data": {name: payload}}, effect=str(wrong.error["message"]))
            return Reply(200, {"data": {name: done}}, effect=_effect(done))

        is_admin = request.url.path.startswith("/admin")
        header = "x-shopify-access-token" if is_admin else "x-shopify-storefront-access-token"
        if not request.headers.get(header) or is_admin != name.startswith("order") or verb in self.simulation.denied:
            return errors("ACCESS_DENIED", "Access denied").response()
        if verb != "checkout":
            return await self.simulation.answer(request, verb, act, basket_id=basket_id)
        return await self.simulation.answer(
            request,
            verb,
            act,
            basket_id=basket_id,
            failing=lambda: act(status="cancelled"),
            accepting=lambda seconds: act(seconds=seconds),
        )


def simulated() -> tuple[Simulation, list[Route]]:
    simulation = ShopifySimulation()
    endpoint = Endpoint(simulation)

    async def answer(request: Request) -> Response:
        return await endpoint(request)

    paths = ("/api/{version}/graphql.json", "/admin/api/{version}/graphql.json")
    return simulation, [Route(path, answer, methods=["POST"]) for path in paths]


def errors(code: str, message: str) -> Reply:
    return Reply(200, {"errors": [{"message": message, "extensions": {"code": code}}]}, effect=code)


def _effect(done: object) -> str:
    """What the ledger says; never an id, which contains a secret."""
    result = done.get("result") if isinstance(done, dict) else None
    return str(result.get("__typename")) if isinstance(result, dict) else "done" if done is not None else "gone"


def _price(attributes: object, default: int) -> int:
    listed = attributes if isinstance(attributes, list) else []
    return next((int(each["value"]) for each in listed if each["key"] == "c_unitPriceMinor"), default)


def _line(line: Mapping[str, Any]) -> Line:
    product_id = str(line["merchandiseId"]).removeprefix(VARIANT)
    return Line(product_id, int(line.get("quantity", 1)), _price(line.get("attributes"), 0))


def _page(start: int, size: int, total: int) -> dict[str, object]:
    return {"pageInfo": {"hasNextPage": start + size < total, "endCursor": str(start + size)}}
