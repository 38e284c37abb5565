"""What has to happen later, as timers of Mainspring: they outlive the process, and whoever is alive gets them.

    synchronise    soon after a change; tried again while the platform is away
    recover        when an attempt should be over; tried again while nobody can tell
    close_basket   of a cart that is gone; given up after a while, because baskets expire by themselves

A timer is made before what it is for is written: one too many finds nothing to do, one too few would be silence. One
that fired before the write was there is one too few, so `before_write` makes another one then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import Final

from mainspring import Mainspring
from mainspring.model import RetryPolicy
from telecom_cart.model import Context
from telecom_cart.settings import Settings

NAMESPACE: Final = "cart"
SYNCHRONISE: Final = "cart.synchronise"
RECOVER: Final = "cart.recover"
CLOSE_BASKET: Final = "cart.close-basket"

HANDLER_SECONDS: Final = 120.0


class Wakes:
    def __init__(self, ms: Mainspring, settings: Settings) -> None:
        self._timers = ms.timers
        self._now = ms.now
        self._settings = settings
        self._patient = RetryPolicy(
            max_attempts=1000,
            initial_interval_seconds=settings.retry_initial_seconds,
            max_interval_seconds=settings.retry_max_seconds,
        )
        self._synchronising = RetryPolicy(max_attempts=1000, initial_interval_seconds=1.0, max_interval_seconds=30.0)
        self._closing = RetryPolicy(max_attempts=20, max_interval_seconds=300.0, on_exhausted="drop")

    @asynccontextmanager
    async def before_write(self, user_id: str) -> AsyncIterator[None]:
        """A synchronisation of what is written in this block."""
        due = await self.synchronise(user_id)
        yield
        if self._now() >= due:
            await self.synchronise(user_id)

    async def synchronise(self, user_id: str) -> datetime:
        """Soon: the answer says when."""
        timer = await self._timers.create(
            f"sync-{_digest(user_id)}",
            namespace=NAMESPACE,
            delay_seconds=self._settings.sync_delay_seconds,
            handler=SYNCHRONISE,
            payload={"userId": user_id},
            retry_policy=self._synchronising,
            callback_timeout_seconds=HANDLER_SECONDS,
        )
        return timer.execute_at

    async def recover(self, user_id: str, cart_id: str, reference: str, *, in_seconds: float) -> None:
        await self._timers.create(
            f"recover-{reference}",
            namespace=NAMESPACE,
            delay_seconds=in_seconds,
            handler=RECOVER,
            payload={"userId": user_id, "cartId": cart_id},
            retry_policy=self._patient,
            callback_timeout_seconds=HANDLER_SECONDS,
        )

    async def forget_recovery(self, reference: str) -> None:
        await self._timers.delete(f"recover-{reference}", namespace=NAMESPACE)

    async def close_basket(self, context: Context) -> None:
        await self._timers.create(
            f"close-{_digest(context.basket_id)}",
            namespace=NAMESPACE,
            delay_seconds=0,
            handler=CLOSE_BASKET,
            payload={"session": context.session, "basketId": context.basket_id, "place": context.place},
            retry_policy=self._closing,
            callback_timeout_seconds=HANDLER_SECONDS,
        )


def _digest(text: str) -> str:
    """Ids of users and baskets may be longer than, or secret where, an id of a timer is not."""
    return sha256(text.encode()).hexdigest()[:32]
