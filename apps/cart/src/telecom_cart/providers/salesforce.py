"""Salesforce B2C Commerce over HTTP: SLAS login, Shopper Baskets v2, Shopper Orders v1.

The session is the shopper's usid. An order carries our reference in `c_orderRef`, which must be defined on Basket and
Order. It is looked up in one of two ways:

    strong      the shop's createOrderNo hook takes `c_orderRef` as the order number, which is unique
    eventual    orders are listed by the time of their creation, which lags; needs an admin client

Nothing here makes an order but one POST of `checkout`, through `Once`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from telecom_cart.model import Context
from telecom_cart.provider import (
    Absent,
    Accepted,
    Basket,
    Closed,
    ContextGone,
    Found,
    Health,
    Line,
    Lookup,
    NotSent,
    PlacedOrder,
    ProviderError,
    Refused,
    Unreachable,
    Unsure,
)
from telecom_cart.providers.calling import (
    Answer,
    Direct,
    Method,
    Once,
    Patience,
    Request,
)
from telecom_cart.providers.reading import told_time
from telecom_cart.providers.salesforce_answers import (
    PRICE,
    REFERENCE,
    basket_id_of,
    basket_of,
    checked,
    found_by_number,
    is_answer,
    item_ids,
    item_of,
    made_at,
    orders_with,
    page_of,
    placed,
    same_basket,
)
from telecom_cart.providers.slas import Tokens, TokenSource

PAGE_SIZE, MOST_PAGES = 50, 100
"""Of one look for an order. The next one goes on from there."""
KEPT_SEARCHES = 1000
CLOCKS_DIFFER_BY_MS = 300_000
"""How far the clocks of their machines may differ."""


@dataclass(frozen=True)
class SalesforceSettings:
    base_url: str
    organization: str
    site: str
    client_id: str
    client_secret: str = field(repr=False)
    lookup: Lookup
    admin_client_id: str = ""
    admin_client_secret: str = field(default="", repr=False)
    admin_token_url: str = ""
    """Empty: `/dwsso/oauth2/access_token` below `base_url`."""
    timeout_seconds: float = 10.0
    """Salesforce answers 504 after that."""


class SalesforceProvider:
    name = "salesforce"
    is_atomic = True
    """An order consumes the basket, which then cannot be deleted."""

    def __init__(self, settings: SalesforceSettings, once: Once, *, patience: Patience | None = None) -> None:
        self.settings = settings
        self.place = f"salesforce:{settings.organization}/{settings.site}"
        self.lookup = settings.lookup
        self.timeout_seconds = settings.timeout_seconds
        self._once = once
        self._direct = Direct(patience)
        self._base = settings.base_url.rstrip("/")
        login = f"{self._base}/shopper/auth/v1/organizations/{settings.organization}/oauth2/token"
        self._shoppers = Tokens(
            TokenSource(login, settings.client_id, settings.client_secret, (("channel_id", settings.site),)),
            self._direct,
        )
        admin = settings.admin_token_url or f"{self._base}/dwsso/oauth2/access_token"
        self._admins = Tokens(TokenSource(admin, settings.admin_client_id, settings.admin_client_secret), self._direct)
        self._probe = ""
        """The shopper that health asks as."""
        self._searched: dict[str, int] = {}
        """By reference, until when all orders were looked through in vain, by their clock."""

    async def open_session(self) -> str:
        return await self._shoppers.open()

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        body = {"currency": currency, "productItems": [item_of(line) for line in lines]}
        answer = await self._ask(session, "POST", self._basket(), body)
        return Context(session, basket_id_of(answer))

    async def add_item(self, context: Context, line: Line) -> None:
        items = item_ids(await self._read(context), line.product_id)
        if not items and line.quantity:
            await self._change(context, "POST", "/items", [item_of(line)])
            return
        for n, item in enumerate(items):
            if n or not line.quantity:
                await self._remove(context, item)
            else:
                path = f"/items/{_part(item)}"
                await self._change(context, "PATCH", path, {"quantity": line.quantity, PRICE: line.price})

    async def remove_item(self, context: Context, product_id: str) -> None:
        for item in item_ids(await self._read(context), product_id):
            await self._remove(context, item)

    async def get_cart(self, context: Context) -> Basket:
        answer = await self._ask(context.session, "GET", self._basket(context))
        return replace(basket_of(_same(answer, context)), read_at=told_time(answer))

    async def validate_context(self, context: Context) -> bool:
        try:
            await self._read(context)
        except ContextGone:
            return False
        return True

    async def set_reference(self, context: Context, reference: str) -> None:
        await self._change(context, "PATCH", "", {REFERENCE: reference})

    async def checkout(
        self, context: Context, reference: str, *, basket: Basket | None = None, accepted: Accepted | None = None
    ) -> PlacedOrder:
        # To read first makes sure of the token, of the reference by which the order has to be found, and of what is
        # ordered.
        try:
            present = await self.get_cart(context)
        except (ContextGone, Refused) as error:
            raise NotSent(*error.reasons, told=error.told) from None
        if present.reference != reference:
            raise NotSent("The basket carries another reference")
        if basket is not None and not present.is_same_as(basket):
            raise NotSent("The basket no longer matches the confirmed cart")
        headers = await self._headers(context.session)
        request = Request("POST", self._url(self._orders()), headers, _json({"basketId": context.basket_id}))
        answer = await self._once(request, request_id=reference, timeout_seconds=self.timeout_seconds)
        order = placed(answer, reference)
        # Numbered otherwise, the shop lacks the hook, and a look-up by the reference is blind.
        is_numbered = self.lookup.lag_seconds != 0 or order.number == reference
        return replace(order, is_findable=order.is_findable and is_numbered)

    async def find_order(
        self, context: Context, reference: str, *, since: int, ticket: str = ""
    ) -> Found | Absent | Unsure:
        try:
            if self.lookup.lag_seconds == 0:
                return await self._by_number(context, reference)
            return await self._by_search(reference, since)
        except ProviderError as error:
            return Unsure(str(error), told=error.told)

    async def close_cart(self, context: Context) -> Closed:
        """Only what the platform says is deleted is closed: if it accepts, or answers something else, it may not be."""
        answer = await self._ask(context.session, "DELETE", self._basket(context))
        try:
            checked(answer)
        except ContextGone:
            return Closed.GONE
        if answer.status != 204:
            raise Unreachable(f"The platform answered {answer.status}, and may not have closed the basket")
        return Closed.CLOSED

    async def health(self) -> Health:
        """Asking for a basket and an order that never existed tries login, baskets and orders, and leaves nothing
        behind. Where orders cannot be looked up, every doubt would be left to a person."""
        try:
            self._probe = self._probe or await self._shoppers.open()
            with suppress(ContextGone):
                checked(await self._ask(self._probe, "GET", self._basket(Context(self._probe, "health")), tries=1))
            if self.lookup.lag_seconds == 0:
                found_by_number(await self._ask(self._probe, "GET", self._orders("health"), tries=1), "health")
            else:
                admin = await self._ask("", "GET", self._all_orders, query={"limit": "1"}, tries=1, tokens=self._admins)
                page_of(admin, offset=0, size=1)
        except ProviderError as error:
            return Health(False, str(error))
        return Health(True)

    async def close(self) -> None:
        await self._direct.close()

    async def _by_number(self, context: Context, reference: str) -> Found | Absent | Unsure:
        return found_by_number(await self._ask(context.session, "GET", self._orders(reference)), reference)

    async def _by_search(self, reference: str, since: int) -> Found | Absent | Unsure:
        start = max(since - CLOCKS_DIFFER_BY_MS, self._searched.get(reference, 0), 0)
        found: list[PlacedOrder] = []
        until, is_last = start, False
        for page in range(MOST_PAGES):
            query = {
                "creationDateFrom": datetime.fromtimestamp(start // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "sortBy": "creation_date",
                "sortOrder": "asc",
                "limit": str(PAGE_SIZE),
                "offset": str(page * PAGE_SIZE),
            }
            answer = await self._ask("", "GET", self._all_orders, query=query, tokens=self._admins)
            rows, is_last = page_of(answer, offset=page * PAGE_SIZE, size=PAGE_SIZE)
            found += orders_with(reference, rows)
            if page == 0:
                until = self._seen_until(answer)
            if is_last:
                break
            if page == MOST_PAGES - 1:
                until = min(until, made_at(rows[-1]))
        if found:
            return Found(tuple(found))
        self._searched.pop(reference, None)
        self._searched[reference] = max(start, until)
        while len(self._searched) > KEPT_SEARCHES:
            del self._searched[next(iter(self._searched))]
        return Absent() if is_last else Unsure("There are more orders since then than can be looked through at once")

    def _seen_until(self, answer: Answer) -> int:
        """All orders that were made until then are in the list by now, by their clock."""
        now, lag = told_time(answer), self.lookup.lag_seconds
        return 0 if now is None or lag is None else now - round(lag * 1000) - CLOCKS_DIFFER_BY_MS

    async def _read(self, context: Context) -> dict[str, Any]:
        return _same(await self._ask(context.session, "GET", self._basket(context)), context)

    async def _change(self, context: Context, method: Method, path: str, body: object) -> None:
        """Not repeated: the first one may still arrive, after all that came later."""
        target = self._basket(context) + path
        checked(await self._ask(context.session, method, target, body, may_repeat=False))

    async def _remove(self, context: Context, item: str) -> None:
        path = f"{self._basket(context)}/items/{_part(item)}"
        answer = await self._ask(context.session, "DELETE", path, may_repeat=False)
        if not is_answer(answer, 404, "item-not-found"):
            checked(answer)

    async def _ask(
        self,
        session: str,
        method: Method,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        may_repeat: bool = True,
        tries: int | None = None,
        tokens: Tokens | None = None,
    ) -> Answer:
        """A token that has expired is renewed for the same customer, once."""
        content = b"" if body is None else _json(body)
        answer = Answer(401, {}, b"")
        for anew in (False, True):
            headers = await self._headers(session, anew=anew, tokens=tokens)
            request = Request(method, self._url(path, query), headers, content)
            answer = await self._direct(request, may_repeat=may_repeat, tries=tries)
            if answer.status != 401:
                return answer
        raise Unreachable("The platform refuses a token that it has just given")

    async def _headers(self, session: str, *, anew: bool = False, tokens: Tokens | None = None) -> dict[str, str]:
        token = await (tokens or self._shoppers).of(session, anew=anew)
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}

    def _basket(self, context: Context | None = None) -> str:
        path = f"/checkout/shopper-baskets/v2/organizations/{self.settings.organization}/baskets"
        return path if context is None else f"{path}/{_part(context.basket_id)}"

    def _orders(self, number: str = "") -> str:
        path = f"/checkout/shopper-orders/v1/organizations/{self.settings.organization}/orders"
        return f"{path}/{_part(number)}" if number else path

    @property
    def _all_orders(self) -> str:
        """Of all customers, for admin clients."""
        return f"/checkout/orders/v1/organizations/{self.settings.organization}/orders"

    def _url(self, path: str, query: Mapping[str, str] | None = None) -> str:
        return f"{self._base}{path}?{urlencode({'siteId': self.settings.site, **(query or {})})}"


def _part(text: object) -> str:
    return quote(str(text), safe="")


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def _same(answer: Answer, context: Context) -> dict[str, Any]:
    return same_basket(checked(answer), context.basket_id)
