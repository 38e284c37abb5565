"""The platform's basket made equal to a cart: by difference, whatever the basket was, or created if it is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from telecom_cart.model import Context, Item
from telecom_cart.provider import Basket, ContextGone, Line, Provider, ProviderError, Unreachable

_TRIES: Final = 3


class Unsettled(Unreachable):
    """A change of a basket got no answer. It may happen at any time from now on, so the basket is no longer usable."""


Keep = Callable[[Context], Awaitable[None]]
"""Writes down which basket is ours, before anything depends on it."""


def lines_of(items: Sequence[Item]) -> tuple[Line, ...]:
    return tuple(Line(item.product_id, item.quantity, item.price) for item in items)


def difference(basket: Basket, wanted: Sequence[Line]) -> tuple[list[Line], list[str]]:
    """What has to be set, and which products have to be taken out. A product that is there twice, at two prices, is
    set."""
    present = _by_product(basket)
    to_set = [line for line in wanted if present.get(line.product_id) != [line]]
    return to_set, sorted(present.keys() - {line.product_id for line in wanted})


def objections(basket: Basket, wanted: Sequence[Line], *, currency: str) -> tuple[str, ...]:
    """How a basket differs from what it should be."""
    found: list[str] = []
    present = _by_product(basket)
    for line in wanted:
        others = present.pop(line.product_id, [])
        if len(others) != 1:
            found.append(f"{line.product_id} is at the platform {len(others)} times")
            continue
        [other] = others
        if other.quantity != line.quantity:
            found.append(f"{line.product_id}: {line.quantity} in the cart, {other.quantity} at the platform")
        elif other.price != line.price:
            found.append(f"{line.product_id}: the price is {line.price} in the cart, {other.price} at the platform")
    found += [f"{product_id} is at the platform, and not in the cart" for product_id in present]
    subtotal = sum(line.price * line.quantity for line in wanted)
    if not found and basket.subtotal != subtotal:
        found.append(f"The subtotal is {subtotal} in the cart, {basket.subtotal} at the platform")
    if basket.currency != currency:
        found.append(f"The currency is {currency} in the cart, {basket.currency} at the platform")
    return tuple(found)


def _by_product(basket: Basket) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in basket.lines:
        found.setdefault(line.product_id, []).append(line)
    return found


async def made_equal(
    provider: Provider,
    context: Context | None,
    wanted: Sequence[Line],
    *,
    currency: str,
    keep: Keep,
    reference: str = "",
) -> tuple[Context, Basket]:
    """The basket with these lines and this reference, if there is to be one, as the platform has it afterwards and as
    was read back. All changes of it were answered: it stays as it is. One that is elsewhere is left there."""
    if context is None or context.place != provider.place:
        context = Context(await provider.open_session(), place=provider.place)
        await keep(context)
    reason = ""
    for _ in range(_TRIES):
        if not context.basket_id:
            made = await provider.create_cart(context.session, wanted, currency=currency)
            context = replace(made, place=provider.place)
            await keep(context)
        try:
            return context, await _changed(provider, context, wanted, reference=reference)
        except ContextGone:
            reason = "Baskets vanish at the platform as soon as they are made"
        except Unsettled as unsettled:
            reason = str(unsettled)
            try:
                await provider.close_cart(context)  # what comes late finds nothing to change
            except ProviderError:
                raise unsettled from None
        context = replace(context, basket_id="")
    raise Unreachable(reason)


async def _changed(provider: Provider, context: Context, wanted: Sequence[Line], *, reference: str) -> Basket:
    basket = await provider.get_cart(context)
    to_set, to_remove = difference(basket, wanted)
    if not (to_set or to_remove or reference):
        return basket
    try:
        for product_id in to_remove:
            await provider.remove_item(context, product_id)
        for line in to_set:
            await provider.add_item(context, line)
        if reference:
            await provider.set_reference(context, reference)
    except Unreachable as error:
        raise Unsettled(str(error)) from error
    return await provider.get_cart(context)
