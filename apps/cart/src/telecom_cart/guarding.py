"""A provider that is held to its contract, whatever it does: what the rest of the cart sees of one.

A provider reads what strangers write, and may raise something else than it promised, or hand on what cannot be kept.
After an order was asked for, that is `Uncertain`; anywhere else it is `Unreachable`, or `Unsure`. What a platform has
to say about its errors is written to the log here, for operators.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from telecom_cart.model import Context
from telecom_cart.provider import (
    Absent,
    Basket,
    Closed,
    ContextGone,
    Found,
    Health,
    Line,
    PlacedOrder,
    Provider,
    ProviderError,
    Uncertain,
    Unreachable,
    Unsure,
    is_plain,
)

T = TypeVar("T")
BROKEN = "The platform's answer cannot be understood"

logger = logging.getLogger("telecom_cart")


class GuardedProvider:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.name = provider.name
        self.place = provider.place
        self.lookup = provider.lookup
        self.timeout_seconds = provider.timeout_seconds

    async def open_session(self) -> str:
        session = await _kept(self._provider.open_session(), "open_session")
        if session != "" and not is_plain(session):
            raise Unreachable(BROKEN)
        return session

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        made = await _kept(self._provider.create_cart(session, lines, currency=currency), "create_cart")
        if not is_plain(made.basket_id):
            raise Unreachable(BROKEN)
        return made

    async def add_item(self, context: Context, line: Line) -> None:
        await _kept(self._provider.add_item(context, line), "add_item", context)

    async def remove_item(self, context: Context, product_id: str) -> None:
        await _kept(self._provider.remove_item(context, product_id), "remove_item", context)

    async def get_cart(self, context: Context) -> Basket:
        return await _kept(self._provider.get_cart(context), "get_cart", context)

    async def validate_context(self, context: Context) -> bool:
        return await _kept(self._provider.validate_context(context), "validate_context", context)

    async def set_reference(self, context: Context, reference: str) -> None:
        await _kept(self._provider.set_reference(context, reference), "set_reference", context, reference)

    async def checkout(self, context: Context, reference: str) -> PlacedOrder:
        asked = self._provider.checkout(context, reference)
        placed = await _kept(asked, "checkout", context, reference, broken=Uncertain)
        if not is_plain(placed.number):
            raise Uncertain(BROKEN)
        return placed

    async def find_order(self, context: Context, reference: str, *, since: int) -> Found | Absent | Unsure:
        try:
            asked = self._provider.find_order(context, reference, since=since)
            found = await _kept(asked, "find_order", context, reference)
        except ProviderError as error:
            return Unsure(str(error))
        if isinstance(found, Found) and not (found.orders and all(is_plain(order.number) for order in found.orders)):
            return Unsure(BROKEN)
        return found

    async def close_cart(self, context: Context) -> Closed:
        return await _kept(self._provider.close_cart(context), "close_cart", context)

    async def health(self) -> Health:
        try:
            return await _kept(self._provider.health(), "health")
        except ProviderError as error:
            return Health(False, str(error))

    async def close(self) -> None:
        await self._provider.close()


async def _kept(
    asked: Coroutine[Any, Any, T],
    verb: str,
    context: Context | None = None,
    reference: str = "",
    *,
    broken: type[ProviderError] = Unreachable,
) -> T:
    """What was asked for, or an error of the contract."""
    about = " ".join(filter(None, (verb, reference, context.shown_id if context is not None else "")))
    try:
        return await asked
    except ProviderError as error:
        if error.told and not isinstance(error, ContextGone):
            logger.warning("the platform did not do %s: %s. It said: %s", about, error, error.told)
        if isinstance(error, Uncertain) and broken is not Uncertain:
            raise Unreachable(str(error)) from None
        raise
    except Exception:  # whatever it is, nobody else knows what to make of it
        logger.exception("the provider broke its contract at %s", about)
        raise broken(BROKEN) from None
