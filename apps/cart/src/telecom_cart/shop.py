"""All of it put together, on one Mainspring: `async with Mainspring(...) as ms, Shop(ms, provider) as shop`.

It is made before the block of the Mainspring is entered, because timers of earlier runs may be due at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Self

from mainspring import DueJob, DueTimer, Mainspring
from mainspring.errors import Conflict
from telecom_cart.carts import Carts
from telecom_cart.checkout import Checkouts
from telecom_cart.cleanup import Cleaner
from telecom_cart.closer import Closer
from telecom_cart.guarded_provider import GuardedProvider
from telecom_cart.keys import Keys
from telecom_cart.model import Context
from telecom_cart.provider import ContextGone, Provider, ProviderError
from telecom_cart.queues import Queues
from telecom_cart.recovery import Recovery, Unresolved
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.settlement import Settlement
from telecom_cart.sync import Busy, Synchroniser
from telecom_cart.touches import Touches
from telecom_cart.trust import Trust
from telecom_cart.wakes import CLOSE_BASKET, NAMESPACE, RECOVER, SYNCHRONISE, Wakes

CLEAN_UP: Final = "telecom-cart-clean-up"
Answer = dict[str, bool] | None
"""What Mainspring is told of a timer: None is done."""

logger = logging.getLogger("telecom_cart")


class Shop:
    def __init__(
        self, ms: Mainspring, provider: Provider, settings: Settings | None = None, *, is_only: bool = True
    ) -> None:
        """`is_only`: there is no other shop on this Mainspring, so timers and jobs are for this one. `BadProvider`: the
        provider is none."""
        self.settings = settings = settings or Settings()
        self.provider = provider = GuardedProvider(provider)
        self.repository = Repository(ms)
        self.idempotency_store = ms.idempotency_store
        self._ms = ms
        self._touches = Touches()
        self._tasks: set[asyncio.Task[None]] = set()
        wakes = Wakes(ms, settings)
        queues = Queues(limit=settings.queue_limit, seconds=settings.queue_seconds)
        closer = Closer(repository=self.repository, wakes=wakes)
        self.settlement = Settlement(repository=self.repository, closer=closer, wakes=wakes)
        self.trust = Trust(ms, provider)
        self.recovery = Recovery(
            repository=self.repository,
            provider=provider,
            closer=closer,
            trust=self.trust,
            hold_seconds=settings.attempt_seconds,
        )
        self.synchroniser = Synchroniser(repository=self.repository, provider=provider, wakes=wakes, settings=settings)
        self.carts = Carts(
            repository=self.repository, queues=queues, wakes=wakes, touches=self._touches, settings=settings
        )
        self.checkouts = Checkouts(
            repository=self.repository,
            provider=provider,
            queues=queues,
            wakes=wakes,
            keys=Keys(self.idempotency_store),
            closer=closer,
            recovery=self.recovery,
            trust=self.trust,
            settings=settings,
            spawn=self._spawn,
        )
        self.cleaner = Cleaner(
            repository=self.repository,
            provider=provider,
            wakes=wakes,
            closer=closer,
            recovery=self.recovery,
            touches=self._touches,
            settings=settings,
        )
        if is_only:
            self.attend()
            ms.job("*/5 * * * *", name=CLEAN_UP, catchup="none", overlap="skip", timeout_seconds=240)(self._clean_up)

    def attend(self) -> None:
        """Be the one whom the timers of this Mainspring reach, instead of another."""
        self._ms.handler(SYNCHRONISE, replace=True)(self._synchronise)
        self._ms.handler(RECOVER, replace=True)(self._recover)
        self._ms.handler(CLOSE_BASKET, replace=True)(self._close_basket)

    async def __aenter__(self) -> Self:
        with suppress(Conflict):  # of an earlier run
            await self._ms.namespaces.create(NAMESPACE)
        self._spawn(self._start())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """What is under way is left to the recovery of whoever comes next."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._tried(self._touches.write(self.repository))

    async def _start(self) -> None:
        await self._tried(self.cleaner.sweep())
        while True:
            await asyncio.sleep(self.settings.touch_seconds)
            await self._tried(self._touches.write(self.repository))

    async def _tried(self, work: Coroutine[Any, Any, object]) -> None:
        """Work that somebody does again later, if it fails now."""
        try:
            await work
        except Exception:  # whatever it is, the next time comes
            logger.exception("work in the background failed, and will be tried again")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("work in the background ended with an error", exc_info=error)

    # --- what Mainspring calls ------------------------------------------------------------------------------

    async def _synchronise(self, timer: DueTimer) -> Answer:
        user_id = timer.payload["userId"]
        return await _answered(f"the cart of {user_id} is not synchronised", self.synchroniser.run(user_id))

    async def _recover(self, timer: DueTimer) -> Answer:
        user_id, cart_id = timer.payload["userId"], timer.payload["cartId"]
        complaint = f"what became of the checkout of {user_id}, cart {cart_id}, is not known"
        return await _answered(complaint, self.recovery.run(user_id, cart_id))

    async def _close_basket(self, timer: DueTimer) -> Answer:
        place = timer.payload.get("place", "")
        if place != self.provider.place:
            return None  # of another shop: it expires there
        context = Context(timer.payload["session"], timer.payload["basketId"], place)
        return await _answered(f"the basket {context.shown_id} is not closed", self._closed(context))

    async def _closed(self, context: Context) -> None:
        with suppress(ContextGone):
            await self.provider.close_cart(context)

    async def _clean_up(self, _: DueJob) -> None:
        done = await self.cleaner.sweep()
        logger.info("carts cleaned up: %s", ", ".join(f"{count} {what}" for what, count in done.items()) or "none")


async def _answered(complaint: str, work: Coroutine[Any, Any, None]) -> Answer:
    """What is to be expected of a platform is a line in the log, and tried again by the policy of the timer."""
    try:
        await work
    except (Busy, ProviderError, Unresolved) as error:
        logger.warning("%s, and tried again: %s", complaint, error)
        return {"ok": False}
    return None
