"""Carts made known to the platform in the background. It is held by one at a time: see `Cart.syncing`.

What the platform refuses is `failed`, and tried again with the next change and before a checkout. What it does not
answer stays `pending`, and the timer tries again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from telecom_cart.contexts import Unsettled, lines_of, made_equal, objections
from telecom_cart.model import Cart, Context, Hold, SyncStatus
from telecom_cart.provider import ContextGone, Provider, Refused, Unreachable
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.wakes import Wakes


class Busy(Exception):
    """Somebody else is at it."""


class _Lost(Exception):
    """The cart is gone, sealed, or held by somebody else."""


class Synchroniser:
    def __init__(self, *, repository: Repository, provider: Provider, wakes: Wakes, settings: Settings) -> None:
        self._repository = repository
        self._wakes = wakes
        self._provider = provider
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.sync_at_once)
        self._next_at = 0.0
        """When the next one may begin."""

    async def run(self, user_id: str) -> None:
        """Make the platform's basket equal to the cart, as long as that changes. Raises to be tried again."""
        async with self._slots:
            await self._paced()
            await self._run(user_id)

    async def _paced(self) -> None:
        """Those that begin together hear from the platform together, again and again, and shoppers wait meanwhile."""
        now = asyncio.get_running_loop().time()
        begin_at = max(now, self._next_at)
        self._next_at = begin_at + self._settings.sync_pause_seconds
        await asyncio.sleep(begin_at - now)

    async def _run(self, user_id: str) -> None:
        while True:
            by = self._repository.new_id()
            left: list[Context] = []
            cart = await self._repository.change(user_id, partial(self._taken, by, left))
            if cart is None or cart.syncing is None or cart.syncing.by != by:
                return  # nothing to do
            for context in left:
                await self._wakes.close_basket(context)
            try:
                if not await self._once(cart, by):
                    return
            except _Lost:
                return

    def _taken(self, by: str, left: list[Context], cart: Cart | None) -> Cart | None:
        """The cart, held by us. A basket in which somebody may still be at work is `left` to him, and closed."""
        now = self._repository.now_ms()
        if cart is None or cart.is_sealed or cart.order_id or cart.sync is not SyncStatus.PENDING:
            return None
        seconds = self._settings.sync_hold_seconds
        if cart.syncing is not None and cart.syncing.lasts(now=now, seconds=seconds):
            raise Busy("Somebody else synchronises it")
        if not cart.items and (cart.context is None or not cart.context.basket_id):
            context = None if cart.syncing else cart.context
            return replace(cart, sync=SyncStatus.SYNCED, synced_at=now, syncing=None, context=context)
        held = replace(cart, syncing=Hold(by, now + round(seconds * 1000)))
        left[:] = [cart.context] if cart.syncing and cart.context and cart.context.basket_id else []
        return replace(held, context=None) if cart.syncing else held

    async def _once(self, cart: Cart, by: str) -> bool:
        """Whether there may be more to do."""
        wanted = lines_of(cart.items)
        context, error, status = cart.context, "", SyncStatus.SYNCED

        async def keep(made: Context) -> None:
            nonlocal context
            context = made
            if await self._repository.change(cart.user_id, lambda c: _held(c, by, context=made)) is None:
                if made.basket_id:  # nobody else knows of it
                    await self._wakes.close_basket(made)
                raise _Lost

        try:
            context, basket = await made_equal(self._provider, cart.context, wanted, currency=cart.currency, keep=keep)
            if objected := objections(basket, wanted, currency=cart.currency):
                status, error = SyncStatus.FAILED, "; ".join(objected)
        except Refused as refused:
            status, error = SyncStatus.FAILED, str(refused)
        except (Unreachable, ContextGone) as unreachable:
            detail = str(unreachable)
            if isinstance(unreachable, Unsettled) and context is not None:
                await self._wakes.close_basket(context)
                context = None
            await self._repository.change(
                cart.user_id, lambda c: _held(c, by, context=context, sync_error=detail, syncing=None)
            )
            raise
        now = self._repository.now_ms()

        def finished(present: Cart | None) -> Cart | None:
            mine = _held(present, by, context=context, context_used_at=now, syncing=None)
            if mine is None or mine.items != cart.items:
                return mine
            synced_at = now if status is SyncStatus.SYNCED else mine.synced_at
            return replace(mine, sync=status, sync_error=error, synced_at=synced_at)

        stored = await self._repository.change(cart.user_id, finished)
        return stored is not None and stored.sync is SyncStatus.PENDING


def _held(cart: Cart | None, by: str, **fields: object) -> Cart | None:
    """The cart with these fields, if it is still held by us."""
    if cart is None or cart.syncing is None or cart.syncing.by != by:
        return None
    return replace(cart, **fields)  # type: ignore[arg-type]
