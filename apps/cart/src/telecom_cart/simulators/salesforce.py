"""Salesforce B2C Commerce, simulated: SLAS, Shopper Baskets v2 (v1 alike), Shopper Orders v1, Orders v1 for admins."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telecom_cart.provider import Line
from telecom_cart.providers.platform import StoredBasket, StoredOrder
from telecom_cart.simulators.simulation import Reply, Simulation

ERRORS = "https://api.commercecloud.salesforce.com/documentation/error/v1/errors/"
LOGIN = "/shopper/auth/v1/organizations/{org}/oauth2/token"
ADMIN_LOGIN = "/dwsso/oauth2/access_token"
BASKETS = "/checkout/shopper-baskets/{version}/organizations/{org}/baskets"
ORDERS = "/checkout/shopper-orders/v1/organizations/{org}/orders"
ADMIN_ORDERS = "/checkout/orders/v1/organizations/{org}/orders"


@dataclass(frozen=True)
class Bearer:
    usid: str
    expires_at: float


class SalesforceSimulation(Simulation):
    name = "salesforce"
    aliases = {"validate_context": "get_cart", "health": "get_cart"}
    extra_verbs = ("admin_login",)

    def reset(self) -> None:
        super().reset()
        self.bearers: dict[str, Bearer] = {}

    def throttled(self) -> Reply:
        return replace(problem(429, "throttled", "Too many requests"), headers={"Retry-After": "1"})

    def failed(self, status: int) -> Reply:
        return problem(status, "internal-error", "Something went wrong")

    def forget_tokens(self) -> None:
        self.bearers.clear()

    def bearer(self, request: Request) -> Bearer | None:
        kept = self.bearers.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        return kept if kept is not None and kept.expires_at > self.now() else None

    def login(self, usid: str) -> Reply:
        token = secrets.token_urlsafe(24)
        self.bearers[token] = Bearer(usid, self.now() + self.token_life_seconds)
        return Reply(
            200,
            {
                "access_token": token,
                "refresh_token": secrets.token_urlsafe(24),
                "token_type": "BEARER",
                "usid": usid,
                "customer_id": f"c-{usid}",
                "expires_in": int(self.token_life_seconds),
            },
        )

    def shown_basket(self, basket: StoredBasket) -> dict[str, object]:
        items = [
            {
                "itemId": id,
                "productId": line.product_id,
                "quantity": line.quantity,
                "basePrice": _amount(line.price),
                "price": _amount(line.price * line.quantity),
                "c_unitPriceMinor": basket.lines[id].price,
            }
            for id, line in self.platform.lines(basket).items()
        ]
        return {
            "basketId": basket.id,
            "currency": basket.currency,
            "customerInfo": {"customerId": f"c-{basket.session}"},
            "productItems": items,
            "productSubTotal": _amount(self.platform.subtotal(basket)),
            "taxTotal": None,
            "c_orderRef": basket.reference or None,
        }

    def shown_order(self, order: StoredOrder) -> dict[str, object]:
        return {
            "orderNo": order.number,
            "status": order.status,
            "currency": order.currency,
            "creationDate": datetime.fromtimestamp(order.made_at, UTC).isoformat(),
            "productSubTotal": _amount(order.subtotal),
            "c_orderRef": None if self.platform.loses_references else order.reference or None,
        }

    def refused(self) -> Reply:
        return basket_not_found("")

    def create(self, session: str, body: Mapping[str, Any]) -> Reply:
        present = self.platform.basket_of(session)
        if present is not None:
            quota = problem(400, "customer-baskets-quota-exceeded", "The customer has too many baskets")
            assert isinstance(quota.body, dict)
            return replace(quota, body={**quota.body, "basketIds": present.id})
        lines = [_line(item) for item in body.get("productItems") or []]
        basket = self.platform.create(session, str(body.get("currency", "CAD")))
        for line in lines:
            self.platform.add_line(basket, line)
        return Reply(200, self.shown_basket(basket))

    def order(self, basket_id: str, *, status: str = "created") -> Reply:
        basket = self.platform.basket(basket_id)
        if basket is None:
            return basket_not_found(basket_id)
        if not basket.lines or self.is_strict:
            missing = "addresses, a shipping method and a payment" if basket.lines else "product items"
            return problem(400, "invalid-basket", f"The basket lacks {missing}")
        number = basket.reference if self.order_number_from_reference else ""
        if number and any(order.number == number for order in self.platform.orders):
            return problem(400, "order-number-not-unique", f"There is an order {number}")
        order = self.platform.order(basket_id, number=number, status=status)
        assert order is not None
        if status == "failed":
            return problem(400, "order-hook-failed", "A hook refused the order, which is stored as failed")
        return Reply(200, self.shown_order(order), effect=f"ordered {order.number}")

    def find(self, number: str) -> Reply:
        for order in self.platform.searched():
            if order.number == number:
                return Reply(200, self.shown_order(order))
        return problem(404, "order-not-found", f"There is no order {number}")

    def listed(self, query: Mapping[str, str]) -> Reply:
        start = datetime.fromisoformat(query.get("creationDateFrom", "1970-01-01T00:00:00Z")).timestamp()
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 25))
        rows = [self.shown_order(order) for order in self.platform.indexed() if order.made_at >= start]
        return Reply(200, {"data": rows[offset : offset + limit], "limit": limit, "offset": offset, "total": len(rows)})


class Endpoints:
    def __init__(self, simulation: SalesforceSimulation) -> None:
        self.simulation = simulation

    def routes(self) -> list[Route]:
        return [
            Route(LOGIN, self.login, methods=["POST"]),
            Route(ADMIN_LOGIN, self.admin_login, methods=["POST"]),
            Route(BASKETS, self.create, methods=["POST"]),
            Route(BASKETS + "/{basket}", self.basket, methods=["GET", "PATCH", "DELETE"]),
            Route(BASKETS + "/{basket}/items", self.items, methods=["POST"]),
            Route(BASKETS + "/{basket}/items/{item:path}", self.item, methods=["PATCH", "DELETE"]),
            Route(ORDERS, self.order, methods=["POST"]),
            Route(ORDERS + "/{number:path}", self.find, methods=["GET"]),
            Route(ADMIN_ORDERS, self.listed, methods=["GET"]),
        ]

    async def login(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        known = form.get("usid", [""])[0]

        def act() -> Reply:
            if not request.headers.get("authorization", "").startswith("Basic "):
                return Reply(401, {"error": "invalid_client", "message": "Client credentials are missing"})
            return self.simulation.login(known or self.simulation.platform.next_id("u"))

        return await self.simulation.answer(request, "open_session", act)

    async def admin_login(self, request: Request) -> Response:
        return await self.simulation.answer(request, "admin_login", lambda: self.simulation.login("admin"))

    async def create(self, request: Request) -> Response:
        bearer, body = self.simulation.bearer(request), await request.json()
        session = bearer.usid if bearer else ""
        act = _known(bearer, lambda: self.simulation.create(session, body))
        return await self.simulation.answer(request, "create_cart", act, session=session)

    async def basket(self, request: Request) -> Response:
        platform = self.simulation.platform
        body = await request.json() if request.method == "PATCH" else {}

        def change(basket: StoredBasket) -> Reply:
            if request.method == "DELETE":
                platform.close(basket.id)
                return Reply(204)
            if request.method == "PATCH":
                basket.reference = str(body.get("c_orderRef", basket.reference) or "")
                platform.prolong(basket)
            return Reply(200, self.simulation.shown_basket(basket))

        verb = {"GET": "get_cart", "PATCH": "set_reference", "DELETE": "close_cart"}[request.method]
        return await self._on_basket(request, verb, change)

    async def items(self, request: Request) -> Response:
        lines = [_line(item) for item in await request.json()]

        def add(basket: StoredBasket) -> Reply:
            for line in lines:
                self.simulation.platform.add_line(basket, line)
            return Reply(200, self.simulation.shown_basket(basket))

        return await self._on_basket(request, "add_item", add)

    async def item(self, request: Request) -> Response:
        id = request.path_params["item"]
        body = await request.json() if request.method == "PATCH" else {"quantity": 0}

        def change(basket: StoredBasket) -> Reply:
            there = basket.lines.get(id)
            if there is None:
                return problem(404, "item-not-found", "There is no such item")
            line = Line(there.product_id, body.get("quantity", 0), body.get("c_unitPriceMinor", there.price))
            if not 0 <= line.quantity <= 999:
                return problem(400, "invalid-quantity", "A quantity is from 0 to 999")
            self.simulation.platform.set_line(basket, line, line_id=id)
            return Reply(200, self.simulation.shown_basket(basket))

        return await self._on_basket(request, "add_item" if body.get("quantity") else "remove_item", change)

    async def order(self, request: Request) -> Response:
        basket_id = str((await request.json()).get("basketId", ""))
        bearer = self.simulation.bearer(request)
        return await self.simulation.answer(
            request,
            "checkout",
            _known(bearer, lambda: self.simulation.order(basket_id)),
            basket_id=basket_id,
            failing=lambda: self.simulation.order(basket_id, status="failed"),
        )

    async def find(self, request: Request) -> Response:
        act = _known(self.simulation.bearer(request), lambda: self.simulation.find(request.path_params["number"]))
        return await self.simulation.answer(request, "find_order", act)

    async def listed(self, request: Request) -> Response:
        act = _known(self.simulation.bearer(request), lambda: self.simulation.listed(request.query_params))
        return await self.simulation.answer(request, "find_order", act)

    async def _on_basket(self, request: Request, verb: str, act: Callable[[StoredBasket], Reply]) -> Response:
        bearer, basket_id = self.simulation.bearer(request), request.path_params["basket"]

        def found() -> Reply:
            basket = self.simulation.platform.basket(basket_id)
            if basket is None:
                return basket_not_found(basket_id)
            if bearer is not None and basket.session != bearer.usid:
                return problem(400, "invalid-customer", "The basket belongs to another customer")
            return act(basket)

        return await self.simulation.answer(request, verb, _known(bearer, found), basket_id=basket_id)


def simulated() -> tuple[Simulation, list[Route]]:
    simulation = SalesforceSimulation()
    return simulation, Endpoints(simulation).routes()


def problem(status: int, code: str, detail: str) -> Reply:
    body = {"type": ERRORS + code, "title": code.replace("-", " ").capitalize(), "detail": detail}
    return Reply(status, body, effect=f"{status} {code}")


def basket_not_found(basket_id: str) -> Reply:
    return problem(404, "basket-not-found", f"No basket with ID {basket_id!r} could be found")


def _known(bearer: Bearer | None, act: Callable[[], Reply]) -> Callable[[], Reply]:
    return act if bearer else lambda: problem(401, "unauthorized", "The access token is missing or has expired")


def _line(item: Mapping[str, Any]) -> Line:
    return Line(str(item["productId"]), int(item["quantity"]), int(item.get("c_unitPriceMinor", 0)))


def _amount(minor: int) -> float:
    return float(Decimal(minor).scaleb(-2))
