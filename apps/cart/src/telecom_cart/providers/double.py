"""A provider in the process, for tests that want thousands of histories: a platform without a network, with faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

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
from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform, StoredBasket, StoredOrder, befall

T = TypeVar("T")
HIDDEN = (FaultKind.APPLY_THEN_DROP, FaultKind.APPLY_THEN_5XX)
PROCESSING = (FaultKind.PROCESSING, FaultKind.PROCESSING_THEN_DROP)


class DoubleProvider:
    """Calls take `latency_seconds`. A fault of `checkout` that hides what happened is `Uncertain`, of others it is
    `Unreachable`."""

    name = "double"

    def __init__(
        self,
        platform: Platform,
        *,
        faults: Faults | None = None,
        lookup: Lookup | None = None,
        latency_seconds: float = 0.01,
        timeout_seconds: float = 10.0,
        is_atomic: bool = True,
    ) -> None:
        """Not `is_atomic`: it may accept an order, and make it later."""
        self.platform = platform
        self.place = f"double:{platform.run}"
        self.faults = faults or Faults()
        self.lookup = lookup or Lookup()
        self.latency_seconds = latency_seconds
        self.timeout_seconds = timeout_seconds
        self.is_atomic = is_atomic

    async def open_session(self) -> str:
        return await self._call("open_session", "", lambda: self.platform.next_id("s"))

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        def create() -> Context:
            present = self.platform.basket_of(session)
            basket = present or self.platform.create(session, currency)
            if present is None:
                for line in lines:
                    self.platform.set_line(basket, line)
            return Context(session, basket.id)

        return await self._call("create_cart", "", create, session=session)

    async def add_item(self, context: Context, line: Line) -> None:
        await self._change("add_item", context, lambda basket: self.platform.set_line(basket, line))

    async def remove_item(self, context: Context, product_id: str) -> None:
        await self._change(
            "remove_item", context, lambda basket: self.platform.set_line(basket, Line(product_id, 0, 0))
        )

    async def get_cart(self, context: Context) -> Basket:
        return await self._call("get_cart", context.basket_id, lambda: self._read(context))

    def _read(self, context: Context) -> Basket:
        basket = self._there(context)
        lines = tuple(self.platform.lines(basket).values())
        read_at = round(self.platform.now() * 1000)
        return Basket(lines, self.platform.subtotal(basket), basket.currency, basket.reference, read_at)

    async def validate_context(self, context: Context) -> bool:
        is_there = lambda: self.platform.basket(context.basket_id) is not None  # noqa: E731
        return await self._call("validate_context", context.basket_id, is_there)

    async def set_reference(self, context: Context, reference: str) -> None:
        def refer(basket: StoredBasket) -> None:
            basket.reference = reference
            self.platform.prolong(basket)

        await self._change("set_reference", context, refer)

    async def checkout(
        self, context: Context, reference: str, *, basket: Basket | None = None, accepted: Accepted | None = None
    ) -> PlacedOrder:
        def order() -> PlacedOrder | str:
            self._check(context, reference)
            placed = self.platform.order(context.basket_id)
            if placed is None:
                raise Refused(f"There is no basket {context.basket_id}")
            return self._shown(placed)

        def fail() -> None:
            self.platform.order(context.basket_id, status="failed")

        def accept(seconds: float) -> PlacedOrder | str:
            self._check(context, reference)
            ticket = self.platform.accept(context.basket_id, seconds)
            if ticket is None:
                raise Refused(f"There is no basket {context.basket_id}")
            return ticket

        there = self.platform.basket(context.basket_id)
        if basket is not None and there is not None and not self._read(context).is_same_as(basket):
            raise NotSent("The basket no longer matches the confirmed cart")
        accepting = None if self.is_atomic else accept
        placed = await self._call("checkout", context.basket_id, order, failing=fail, accepting=accepting)
        return placed if isinstance(placed, PlacedOrder) else await self._awaited(placed, accepted)

    async def _awaited(self, ticket: str, accepted: Accepted | None) -> PlacedOrder:
        """What became of an order that was accepted."""
        if accepted is not None:
            await accepted(ticket)
        waited = 0.0
        while (made := self._by(ticket)) is None:
            if waited > self.timeout_seconds:
                raise Uncertain("An order was asked for, and is still being made")
            await asyncio.sleep(0.5)
            waited += 0.5
        return self._shown(made)

    def _by(self, ticket: str) -> StoredOrder | None:
        self.platform.settle()
        return self.platform.tickets.get(ticket)

    def _check(self, context: Context, reference: str) -> None:
        basket = self.platform.basket(context.basket_id)
        if basket is not None and basket.reference != reference:
            raise Refused("The basket carries another reference")

    def _shown(self, order: StoredOrder) -> PlacedOrder:
        return replace(order.placed, is_findable=not self.platform.loses_references)

    async def find_order(
        self, context: Context, reference: str, *, since: int, ticket: str = ""
    ) -> Found | Absent | Unsure:
        def find() -> Found | Absent | Unsure:
            seen = self.platform.searched() if self.lookup.lag_seconds == 0 else self.platform.indexed()
            seen = [] if self.platform.loses_references else seen
            orders = tuple(order.placed for order in seen if order.reference == reference)
            if orders or ticket not in self.platform.tickets:
                return Found(orders) if orders else Absent()
            made = self._by(ticket)
            if made is not None:
                return Found((self._shown(made),))
            return Unsure("The platform is still making the order", is_being_made=True)

        try:
            return await self._call("find_order", context.basket_id, find)
        except ProviderError as error:
            return Unsure(str(error))

    async def close_cart(self, context: Context) -> Closed:
        def close() -> Closed:
            return Closed.CLOSED if self.platform.close(context.basket_id) else Closed.GONE

        return await self._call("close_cart", context.basket_id, close)

    async def health(self) -> Health:
        try:
            await self._call("health", "", lambda: None)
        except ProviderError as error:
            return Health(False, str(error))
        return Health(True)

    async def close(self) -> None:
        """There are no connections."""

    def _there(self, context: Context) -> StoredBasket:
        basket = self.platform.basket(context.basket_id)
        if basket is None:
            raise ContextGone(f"There is no basket {context.basket_id}")
        return basket

    async def _change(self, verb: str, context: Context, change: Callable[[StoredBasket], None]) -> None:
        await self._call(verb, context.basket_id, lambda: change(self._there(context)))

    async def _call(
        self,
        verb: str,
        basket_id: str,
        act: Callable[[], T],
        *,
        failing: Callable[[], None] | None = None,
        accepting: Callable[[float], T] | None = None,
        session: str = "",
    ) -> T:
        fault = self.faults.take(verb)
        await asyncio.sleep(self.latency_seconds)
        if fault is not None and fault.kind in PROCESSING and accepting is not None:
            act = partial(accepting, fault.seconds)
        if fault is not None:
            await self._before(verb, basket_id, fault, act, failing=failing, session=session)
        is_dearer = fault is not None and fault.kind is FaultKind.PRICE_DRIFT
        try:
            with self.platform.drifted(int(is_dearer)):
                done = act()
        except (ContextGone, Refused) as error:
            self.platform.note(verb, basket_id, str(error))
            raise
        self.platform.note(verb, basket_id, "done")
        if fault is not None and fault.kind is FaultKind.APPLY_THEN_REFUSE:
            raise Refused(f"The platform refused {verb}")
        if fault is not None and fault.kind is FaultKind.APPLY_THEN_THROTTLE:
            raise self._put_off(verb)
        is_dropped = fault is not None and fault.kind is FaultKind.PROCESSING_THEN_DROP and accepting is not None
        if fault is not None and (fault.kind in HIDDEN or is_dropped):
            raise self._hidden(verb, fault)
        await asyncio.sleep(self.latency_seconds)
        return done

    async def _before(
        self,
        verb: str,
        basket_id: str,
        fault: Fault,
        act: Callable[[], object],
        *,
        failing: Callable[[], None] | None,
        session: str,
    ) -> None:
        """What a fault does before the request has an effect, or instead of it."""
        match fault.kind:
            case FaultKind.DOWN:
                raise Unreachable("The platform is down")
            case FaultKind.THROTTLE:
                raise self._put_off(verb)
            case FaultKind.FAIL_BEFORE:
                raise self._hidden(verb, fault)
            case FaultKind.APPLY_LATER:
                self.platform.later(fault.seconds, lambda: self._apply_late(verb, basket_id, act))
                raise self._hidden(verb, fault)
            case FaultKind.FAILED_ORDER_400 if failing is not None:
                failing()
                raise Refused("The order was stored as failed")
            case FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
            case _:
                befall(self.platform, fault, basket_id=basket_id, session=session)

    def _apply_late(self, verb: str, basket_id: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (ContextGone, Refused) as error:
            self.platform.note(verb, basket_id, f"late: {error}")
        else:
            self.platform.note(verb, basket_id, "late: done")

    def _put_off(self, verb: str) -> Refused | Unreachable:
        kind = Refused if verb == "checkout" else Unreachable
        return kind("The platform wants fewer requests")

    def _hidden(self, verb: str, fault: Fault) -> Uncertain | Unreachable:
        kind = Uncertain if verb == "checkout" else Unreachable
        return kind(f"No usable answer to {verb}: {fault.kind}")
