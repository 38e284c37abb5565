"""A provider as the cart uses it: one that keeps to the contract, or is taken at its worst.

What it lacks is said when the shop is made, not at the first checkout. What it raises or answers although the contract
knows no such thing is written to the log, and told as what the contract has for not knowing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from telecom_cart.model import Context
from telecom_cart.provider import (
    Absent,
    Basket,
    Closed,
    Found,
    Health,
    Line,
    Lookup,
    PlacedOrder,
    Provider,
    ProviderError,
    Uncertain,
    Unreachable,
    Unsure,
)

T = TypeVar("T")
VERBS: Final = (
    "open_session",
    "create_cart",
    "add_item",
    "remove_item",
    "get_cart",
    "validate_context",
    "set_reference",
    "checkout",
    "find_order",
    "close_cart",
    "health",
    "close",
)

logger = logging.getLogger("telecom_cart")


class BadProvider(TypeError):
    """It is not what the contract says that a provider is."""


def check(provider: Provider) -> None:
    """Raises `BadProvider`, which names all that is wrong with it."""

    def has(name: str) -> object:
        return getattr(provider, name, None)

    name, place, lookup, seconds = has("name"), has("place"), has("lookup"), has("timeout_seconds")
    wrong = [f"a method {verb}" for verb in VERBS if not callable(has(verb))]
    if not isinstance(name, str) or not name:
        wrong.append(f"a name that is a text and not empty, got {name!r}")
    elif not isinstance(place, str) or not place.startswith(f"{name}:"):
        wrong.append(f"a place that begins with {name}: and says which shop it is, got {place!r}")
    if not isinstance(lookup, Lookup):
        wrong.append(f"a lookup that is a Lookup, got {lookup!r}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        wrong.append(f"timeout_seconds that is a number above 0, got {seconds!r}")
    if wrong:
        raise BadProvider(f"Expected of the provider {type(provider).__name__}: {'; '.join(wrong)}")


class Guarded:
    """A `Provider` that raises and answers nothing but what the contract says."""

    def __init__(self, provider: Provider) -> None:
        check(provider)
        self._provider = provider
        self.name = provider.name
        self.place = provider.place
        self.lookup = provider.lookup
        self.timeout_seconds = provider.timeout_seconds

    async def open_session(self) -> str:
        return await self._kept("open_session", str, self._provider.open_session)

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        return await self._kept(
            "create_cart", Context, lambda: self._provider.create_cart(session, lines, currency=currency)
        )

    async def add_item(self, context: Context, line: Line) -> None:
        await self._kept("add_item", object, lambda: self._provider.add_item(context, line))

    async def remove_item(self, context: Context, product_id: str) -> None:
        await self._kept("remove_item", object, lambda: self._provider.remove_item(context, product_id))

    async def get_cart(self, context: Context) -> Basket:
        return await self._kept("get_cart", Basket, lambda: self._provider.get_cart(context))

    async def validate_context(self, context: Context) -> bool:
        return await self._kept("validate_context", bool, lambda: self._provider.validate_context(context))

    async def set_reference(self, context: Context, reference: str) -> None:
        await self._kept("set_reference", object, lambda: self._provider.set_reference(context, reference))

    async def checkout(self, context: Context, reference: str) -> PlacedOrder:
        return await self._kept(
            "checkout", PlacedOrder, lambda: self._provider.checkout(context, reference), unknown=Uncertain
        )

    async def find_order(self, context: Context, reference: str, *, since: int) -> Found | Absent | Unsure:
        try:
            return await self._kept(
                "find_order",
                (Found, Absent, Unsure),
                lambda: self._provider.find_order(context, reference, since=since),
            )
        except ProviderError as error:
            return Unsure(str(error))

    async def close_cart(self, context: Context) -> Closed:
        return await self._kept("close_cart", Closed, lambda: self._provider.close_cart(context))

    async def health(self) -> Health:
        try:
            return await self._kept("health", Health, self._provider.health)
        except ProviderError as error:
            return Health(False, str(error))

    async def close(self) -> None:
        await self._provider.close()

    async def _kept(
        self,
        verb: str,
        kind: type[T] | tuple[type[T], ...],
        ask: Callable[[], Awaitable[T]],
        *,
        unknown: type[ProviderError] = Unreachable,
    ) -> T:
        try:
            answer = await ask()
        except ProviderError as error:
            if isinstance(error, Uncertain) and unknown is not Uncertain:
                raise Unreachable(str(error)) from error
            raise
        except Exception as error:
            logger.exception("%s of the provider raised what it may not", verb)
            raise unknown(f"The provider failed at {verb}: {type(error).__name__}") from error
        if not isinstance(answer, kind):
            logger.error("%s of the provider answered what it may not: %s", verb, type(answer).__name__)
            raise unknown(f"The provider failed at {verb}: it answered {type(answer).__name__}")
        return answer
