"""Shopify over the Storefront API, in GraphQL.

There is no session: who knows the id of a cart has it, so the id contains a secret and is shown to nobody. Carts cannot
be deleted: a closed one is marked as closed by an attribute, and has no lines, so that there is nothing to order. An
order carries our reference as an attribute of its cart. It is looked up by the Admin API, in one of two ways:

    strong      by `source_identifier`, which we give with the payment
    eventual    by the token of the cart, in the index of orders, which lags

An order is accepted first, and made later, while its cart can still be read and emptied: so a cart that was closed may
have been ordered (`is_atomic`). What became of what was accepted is asked for by the id of the attempt, the ticket.

Nothing here makes an order but the one cartSubmitForCompletion of `checkout`, through `Once`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

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
    Uncertain,
    Unreachable,
    Unsure,
)
from telecom_cart.providers import shopify_documents as documents
from telecom_cart.providers.calling import Direct, Once, Patience, Request
from telecom_cart.providers.reading import objects, text, understood
from telecom_cart.providers.shopify_answers import (
    CLOSED_MARK,
    PRICE,
    REFERENCE,
    Untold,
    amount_of,
    attribute,
    attributes_with,
    basket_of,
    can_be_ordered,
    cart_in,
    check_ready,
    created_in,
    data_of,
    ended,
    has,
    is_marked,
    line_ids,
    line_input,
    order_of,
    orders_with,
    page_of,
    payload_of,
    quoted,
    reference_of,
    submitted,
    throttled,
)

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
    """How long to wait for one request, and for an order at once."""
    completion_seconds: float = 60.0
    """How long Shopify may take to make an order that it has accepted. It promises nothing about that."""


class ShopifyProvider:
    name = "shopify"
    is_atomic = False

    def __init__(self, settings: ShopifySettings, once: Once, *, patience: Patience | None = None) -> None:
        self.settings = settings
        self.place = f"shopify:{urlsplit(settings.base_url).netloc}"
        self.lookup = settings.lookup
        self.timeout_seconds = settings.completion_seconds
        self._once = once
        self._direct = Direct(patience, throttled=throttled)

    async def open_session(self) -> str:
        return ""

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        if currency not in COUNTRIES:
            raise Refused(f"Shopify sells in {', '.join(COUNTRIES)}, not in {currency}")
        wanted = {"lines": [line_input(line) for line in lines], "buyerIdentity": {"countryCode": COUNTRIES[currency]}}
        # Made twice it would be two carts, of which one is forgotten: that does no harm, but is not repeated here.
        data = await self._ask(documents.CREATE_CART, {"input": wanted}, may_repeat=False)
        return Context(session, created_in(data))

    async def add_item(self, context: Context, line: Line) -> None:
        cart = await self._read(context)
        present = line_ids(cart, line.product_id)
        if not present and line.quantity:
            lines = {"lines": [line_input(line)]}
            await self._change(context, documents.ADD_ITEM, "cartLinesAdd", lines)
        elif present:
            first = {"id": present[0], "quantity": line.quantity, "attributes": [attribute(PRICE, str(line.price))]}
            others = [{"id": each, "quantity": 0} for each in present[1:]]
            await self._change(context, documents.CHANGE_ITEM, "cartLinesUpdate", {"lines": [first, *others]})

    async def remove_item(self, context: Context, product_id: str) -> None:
        cart = await self._read(context)
        ids = line_ids(cart, product_id)
        if ids:
            await self._change(context, documents.REMOVE_ITEM, "cartLinesRemove", {"lineIds": ids})

    async def get_cart(self, context: Context) -> Basket:
        return basket_of(await self._read(context))

    async def validate_context(self, context: Context) -> bool:
        cart = cart_in(await self._ask(documents.VALIDATE_CONTEXT, {"id": context.basket_id}), context.basket_id)
        return cart is not None and can_be_ordered(cart)

    async def set_reference(self, context: Context, reference: str) -> None:
        cart = await self._read(context)  # raises, if it was closed
        attributes = {"attributes": attributes_with(cart, REFERENCE, reference)}
        await self._change(context, documents.SET_REFERENCE, "cartAttributesUpdate", attributes)

    async def checkout(
        self, context: Context, reference: str, *, basket: Basket | None = None, accepted: Accepted | None = None
    ) -> PlacedOrder:
        until = time.monotonic() + self.settings.timeout_seconds
        try:
            await self._prepare(context, reference, basket)
        except (ContextGone, Refused) as error:
            raise NotSent(*error.reasons, told=error.told) from None
        variables = {"cartId": context.basket_id, "attemptToken": reference}
        request = self._request(documents.SUBMIT, variables)
        answer = await self._once(request, request_id=reference, timeout_seconds=self.settings.timeout_seconds)
        ticket = submitted(answer)
        if accepted is not None:
            await accepted(ticket)
        while not isinstance(outcome := await self._outcome(ticket), str):
            if time.monotonic() + outcome > until:
                raise Uncertain("An order was asked for, and is still being made")
            await asyncio.sleep(outcome)
        return await self._made(outcome, reference)

    async def find_order(
        self, context: Context, reference: str, *, since: int, ticket: str = ""
    ) -> Found | Absent | Unsure:
        try:
            found = await self._looked_up(context, reference)
        except ProviderError as error:
            found = Unsure(str(error), told=error.told)
        if not ticket or (isinstance(found, Found) and any(order.is_live for order in found.orders)):
            return found
        try:
            outcome = await self._outcome(ticket)
            if isinstance(outcome, str):
                return Found((await self._made(outcome, reference),))
        except Refused:
            return found  # that it failed is not believed alone
        except Untold as error:
            return Unsure(str(error), needs_person=True, told=error.told)
        except ProviderError as error:
            return Unsure(str(error), told=error.told)
        return Unsure("The platform is still making the order", is_being_made=True)

    async def _looked_up(self, context: Context, reference: str) -> Found | Absent | Unsure:
        strong = self.lookup.lag_seconds == 0
        token = context.shown_id.rpartition("/")[2]
        query = f"source_identifier:{quoted(reference)}" if strong else f"cart_token:{quoted(token)}"
        found: list[PlacedOrder] = []
        after: str | None = None
        doubt = ""
        for _ in range(MOST_PAGES):
            data = await self._ask(documents.FIND_ORDER, {"query": query, "after": after}, is_admin=True)
            with understood():
                nodes, after = page_of(data["orders"])
            found += orders_with(reference, nodes)
            if not all(map(reference_of, nodes)):
                doubt = "There are orders without a reference, of which one may be this"
            if after is None:
                break
        else:
            doubt = "There are more orders than can be looked through"
        if found:
            return Found(tuple(found))
        return Unsure(doubt, needs_person=True) if doubt else Absent()

    async def close_cart(self, context: Context) -> Closed:
        """Marked first, so that whoever reads it leaves it alone; then emptied, until it is read as empty. It keeps its
        reference: an order may be made of it in between, and has to be found."""
        was_open = False
        for _ in range(CLOSING_TURNS):
            try:
                cart = await self._read(context, closed_too=True)
                if is_marked(cart) and not cart["lines"]:
                    return Closed.CLOSED if was_open else Closed.GONE
                was_open = True
                if not is_marked(cart):
                    mark = {"attributes": attributes_with(cart, CLOSED_MARK, "yes")}
                    await self._change(context, documents.MARK_CLOSED, "cartAttributesUpdate", mark, may_repeat=True)
                if cart["lines"]:
                    ids = {"lineIds": line_ids(cart)}
                    await self._change(context, documents.EMPTY_CART, "cartLinesRemove", ids, may_repeat=True)
            except ContextGone:
                # Never `CLOSED`: it may have been ordered between two of these requests.
                return Closed.GONE
        raise Unreachable("The basket is being filled while it is emptied")

    async def health(self) -> Health:
        """Both sides of it: a shop in which orders cannot be looked up would leave every doubt to a person."""
        try:
            told = await self._ask(documents.HEALTH, {}, tries=1)
            nobody = {"query": f"source_identifier:{quoted('health')}"}
            seen = await self._ask(documents.HEALTH_OF_ORDERS, nobody, is_admin=True, tries=1)
            with understood():
                text(told["shop"]["name"])
                objects(seen["orders"]["nodes"])
        except ProviderError as error:
            return Health(False, str(error))
        return Health(True)

    async def close(self) -> None:
        await self._direct.close()

    async def _prepare(self, context: Context, reference: str, wanted: Basket | None) -> None:
        """All that comes before the order."""
        cart = await self._read(context)
        if not has(cart, REFERENCE, reference):
            raise Refused("The basket carries another reference")
        basket = basket_of(cart)
        if wanted is not None and not basket.is_same_as(wanted):
            raise Refused("The basket no longer matches the confirmed cart")
        amount = {"amount": amount_of(basket.subtotal, basket.currency), "currencyCode": basket.currency}
        payment = {"payment": {"amount": amount, "sourceIdentifier": reference}}
        await self._change(context, documents.PAY, "cartPaymentUpdate", payment)
        payload = await self._change(context, documents.PREPARE, "cartPrepareForCompletion", {})
        check_ready(payload)

    async def _outcome(self, ticket: str) -> str | float:
        """The order that was made, or the seconds after which to ask again. Only what the attempt itself says counts:
        a refusal to answer says nothing about the order."""
        try:
            data = await self._ask(documents.POLL, {"attemptId": ticket})
        except ProviderError as error:
            raise Uncertain(f"An order was requested, and its outcome not reported: {error}", told=error.told) from None
        return ended(data)

    async def _made(self, order_id: str, reference: str) -> PlacedOrder:
        """An order that was made, and what it says about itself, if it can be asked. One that carries no reference is
        ours all the same: it was named when we asked for ours."""
        try:
            data = await self._ask(documents.GET_ORDER, {"id": order_id}, is_admin=True, tries=1)
            with understood():
                told = data["order"]
                carried, order = ("", None) if told is None else (reference_of(told), order_of(told))
        except ProviderError:
            return PlacedOrder(order_id, "created", True)
        if order is None:
            raise Untold("An order was named that the platform does not have", told=f"It named {order_id}")
        if order.number != order_id:
            return PlacedOrder(order_id, "created", True)
        if carried not in ("", reference):
            raise Untold("An order was asked for, and another one named", told=f"It named {order_id}")
        return replace(order, is_findable=carried == reference)

    async def _read(self, context: Context, *, closed_too: bool = False) -> dict[str, Any]:
        """The cart with all its lines, as a list."""
        lines: list[dict[str, Any]] = []
        after: str | None = None
        for _ in range(MOST_PAGES):
            asked = {"id": context.basket_id, "after": after}
            cart = cart_in(await self._ask(documents.GET_CART, asked), context.basket_id)
            if cart is None or (is_marked(cart) and not closed_too):
                raise ContextGone("There is no such basket")
            with understood():
                nodes, after = page_of(cart["lines"])
            lines += nodes
            if after is None:
                return {**cart, "lines": lines}
        raise Unreachable("The basket has more lines than can be read")

    async def _change(
        self,
        context: Context,
        document: str,
        name: str,
        variables: Mapping[str, object],
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """Only what closes a cart may be repeated: a copy that arrives late does no harm."""
        asked = {"cartId": context.basket_id, **variables}
        return payload_of(await self._ask(document, asked, may_repeat=may_repeat), name)

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
        return data_of(await self._direct(request, may_repeat=may_repeat, tries=tries))

    def _request(self, document: str, variables: Mapping[str, object], *, is_admin: bool = False) -> Request:
        root = self.settings.base_url.rstrip("/") + ("/admin" if is_admin else "")
        name = "X-Shopify-Access-Token" if is_admin else "X-Shopify-Storefront-Access-Token"
        token = self.settings.admin_token if is_admin else self.settings.storefront_token
        headers = {name: token, "Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps({"query": document, "variables": variables}).encode()
        return Request("POST", f"{root}/api/{self.settings.version}/graphql.json", headers, body)
