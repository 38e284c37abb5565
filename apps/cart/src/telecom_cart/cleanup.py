"""What is no longer needed, and what was forgotten: looked for by a job every five minutes, and at a start.

It goes through all carts, a page at a time. Nothing depends on it being on time: recoveries and synchronisations have
timers of their own, and this finds those whose timer was lost.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from telecom_cart.closing import Closer
from telecom_cart.model import Cart, CheckoutStatus, SyncStatus
from telecom_cart.provider import Provider, ProviderError
from telecom_cart.recovery import Recovery, Unresolved
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.touches import Touches
from telecom_cart.wakes import Wakes

OVERDUE_MS: Final = 300_000
"""How long a synchronisation may be pending before its timer is looked for."""

logger = logging.getLogger("telecom_cart")


class Cleaner:
    def __init__(
        self,
        *,
        repository: Repository,
        provider: Provider,
        wakes: Wakes,
        closer: Closer,
        recovery: Recovery,
        touches: Touches,
        settings: Settings,
    ) -> None:
        self._repository = repository
        self._provider = provider
        self._wakes = wakes
        self._closer = closer
        self._recovery = recovery
        self._touches = touches
        self._settings = settings

    async def sweep(self) -> Counter[str]:
        """Look at every cart once. What was done, and how often; one that fails does not stop the others."""
        done: Counter[str] = Counter()
        await self._touches.write(self._repository)
        async for document in self._repository.carts.scan():
            try:
                done[await self._look(document.value)] += 1
            except Exception:  # the next sweep comes to it again
                logger.exception("the cart of %s was not cleaned up", document.value.user_id)
                done["failed"] += 1
        return done

    async def _look(self, cart: Cart) -> str:
        now = self._repository.now_ms()
        if cart.order_id:
            await self._closer.clean_up(cart.user_id, cart.id, cart.attempt)
            return "ordered"
        if cart.is_sealed:
            return await self._recovered(cart, now)
        if now - cart.accessed_at > self._patience_ms(cart):
            return await self._removed(cart)
        hold_seconds = self._settings.sync_hold_seconds
        is_held = cart.syncing is not None and cart.syncing.lasts(now=now, seconds=hold_seconds)
        if cart.sync is SyncStatus.PENDING and now - cart.updated_at > OVERDUE_MS and not is_held:
            await self._wakes.synchronise(cart.user_id)
            return "synchronised"
        return await self._validated(cart, now)

    def _patience_ms(self, cart: Cart) -> float:
        """What other instances have read is written within two turns of theirs."""
        is_failed = cart.checkout_status is CheckoutStatus.FAILED
        inactive_seconds = self._settings.failed_inactive_seconds if is_failed else self._settings.inactive_seconds
        return 1000 * (inactive_seconds + 2 * self._settings.touch_seconds)

    async def _recovered(self, cart: Cart, now: int) -> str:
        assert cart.attempt is not None
        if cart.attempt.is_under_way(now=now, seconds=self._settings.attempt_seconds):
            return "under way"
        try:
            await self._recovery.run(cart.user_id, cart.id)
        except Unresolved:
            return "unresolved"
        return "recovered"

    async def _removed(self, cart: Cart) -> str:
        def is_same(present: Cart) -> bool:
            is_untouched = (present.revision, present.accessed_at) == (cart.revision, cart.accessed_at)
            return present.id == cart.id and is_untouched and not present.is_sealed

        removed = await self._repository.remove(cart.user_id, is_same)
        if removed is None:
            return "kept"
        if removed.context is not None and removed.context.basket_id:
            await self._wakes.close_basket(removed.context)
        return "removed"

    async def _validated(self, cart: Cart, now: int) -> str:
        """A basket that nobody used for a while may have expired, and is then created again."""
        context = cart.context
        if context is not None and context.place != self._provider.place:
            return await self._moved(cart)
        is_idle = now - cart.context_used_at > self._settings.idle_seconds * 1000
        if context is None or not context.basket_id or not is_idle or cart.sync is not SyncStatus.SYNCED:
            return "kept"
        try:
            is_there = await self._provider.validate_context(context)
        except ProviderError:
            return "kept"

        def validated(present: Cart | None) -> Cart | None:
            if present is None or present.context != context or present.is_sealed or present.syncing is not None:
                return None
            if is_there:
                return replace(present, context_used_at=now)
            return replace(present, context=replace(context, basket_id=""), sync=SyncStatus.PENDING)

        async with nullcontext() if is_there else self._wakes.before_write(cart.user_id):
            await self._repository.change(cart.user_id, validated)
        return "kept" if is_there else "expired"

    async def _moved(self, cart: Cart) -> str:
        """Its basket is in a shop that this process does not serve: it gets one here."""

        def moved(present: Cart | None) -> Cart | None:
            if present is None or present.context != cart.context or present.is_sealed or present.syncing is not None:
                return None
            return replace(present, context=None, sync=SyncStatus.PENDING)

        async with self._wakes.before_write(cart.user_id):
            await self._repository.change(cart.user_id, moved)
        return "moved"
