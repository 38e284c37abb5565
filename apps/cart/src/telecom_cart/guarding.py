"""A provider as the cart uses it: one that keeps to the contract, or is taken at its worst.

What it lacks is said when the shop is made, not at the first checkout. What it raises or returns against the contract
is logged, and reported as what the contract has for not knowing; so is what cannot be kept.
What a platform has to say about an error is written to the log here, for operators.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

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
    PlacedOrder,
    Provider,
    ProviderError,
    Uncertain,
    Unreachable,
    Unsure,
    is_plain,
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
    if not isinstance(has("is_atomic"), bool):
        wrong.append(f"is_atomic that is true or false, got {has('is_atomic')!r}")
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
        self.is_atomic = provider.is_atomic

    async def open_session(self) -> str:
        session = await self._kept("open_session", str, self._provider.open_session)
        if session:
            _check_plain("open_session", session)
        return session

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        made = await self._kept(
            "create_cart", Context, lambda: self._provider.create_cart(session, lines, currency=currency)
        )
        _check_plain("create_cart", made.basket_id)
        return made

    async def add_item(self, context: Context, line: Line) -> None:
        await self._kept("add_item", object, lambda: self._provider.add_item(context, line), about=context)

    async def remove_item(self, context: Context, product_id: str) -> None:
        await self._kept("remove_item", object, lambda: self._provider.remove_item(context, product_id), about=context)

    async def get_cart(self, context: Context) -> Basket:
        return await self._kept("get_cart", Basket, lambda: self._provider.get_cart(context), about=context)

    async def validate_context(self, context: Context) -> bool:
        return await self._kept(
            "validate_context", bool, lambda: self._provider.validate_context(context), about=context
        )

    async def set_reference(self, context: Context, reference: str) -> None:
        await self._kept(
            "set_reference", object, lambda: self._provider.set_reference(context, reference), about=context
        )

    async def checkout(
        self, context: Context, reference: str, *, basket: Basket | None = None, accepted: Accepted | None = None
    ) -> PlacedOrder:
        placed = await self._kept(
            "checkout",
            PlacedOrder,
            lambda: self._provider.checkout(context, reference, basket=basket, accepted=accepted),
            unknown=Uncertain,
            about=context,
            reference=reference,
        )
        _check_plain("checkout", placed.number, unknown=Uncertain)
        return placed

    async def find_order(
        self, context: Context, reference: str, *, since: int, ticket: str = ""
    ) -> Found | Absent | Unsure:
        try:
            found: Found | Absent | Unsure = await self._kept(
                "find_order",
                (Found, Absent, Unsure),
                lambda: self._provider.find_order(context, reference, since=since, ticket=ticket),
                about=context,
                reference=reference,
            )
            if isinstance(found, Unsure) and found.told:
                logger.warning(
                    "the outcome of %s is not reported: %s. It said: %s", reference, found.reason, found.told
                )
            if isinstance(found, Found):
                _check_plain("find_order", *(order.number for order in found.orders))
                seen: dict[str, PlacedOrder] = {}
                for order in found.orders:  # a list that moves while it is read shows an order twice
                    seen.setdefault(order.number, order)
                return Found(tuple(seen.values()))
            return found
        except ProviderError as error:
            return Unsure(str(error))

    async def close_cart(self, context: Context) -> Closed:
        return await self._kept("close_cart", Closed, lambda: self._provider.close_cart(context), about=context)

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
        about: Context | None = None,
        reference: str = "",
    ) -> T:
        named = " ".join(filter(None, (reference, about.shown_id if about is not None else ""))) or "nobody"
        try:
            answer = await ask()
        except ProviderError as error:
            if error.told:
                logger.warning("the platform did not do %s for %s: %s. It said: %s", verb, named, error, error.told)
            elif isinstance(error, Uncertain):
                logger.warning("the outcome of %s for %s is unknown: %s", verb, named, error)
            if isinstance(error, Uncertain) and unknown is not Uncertain:
                raise Unreachable(str(error)) from error
            if isinstance(error, ContextGone) and about is None:  # there was no basket that could be gone
                raise Unreachable(str(error)) from error
            raise
        except Exception as error:
            logger.exception("%s of the provider raised what it may not, for %s", verb, named)
            raise unknown(f"The provider failed at {verb}: {type(error).__name__}") from error
        if not isinstance(answer, kind):
            logger.error("%s of the provider answered what it may not: %s", verb, type(answer).__name__)
            raise unknown(f"The provider failed at {verb}: it answered {type(answer).__name__}")
        return answer


def _check_plain(verb: str, *kept: object, unknown: type[ProviderError] = Unreachable) -> None:
    """What has to be stored and sent again: see the contract."""
    if not kept or not all(map(is_plain, kept)):
        logger.error("%s of the provider answered an id that cannot be kept", verb)
        raise unknown(f"The provider failed at {verb}: it answered an id that cannot be kept")
