"""How the platform really is, how many checkouts are unknown, and that the store can be written: looked at every few
seconds, however many ask us."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from telecom_cart.provider import Health, ProviderError
from telecom_cart.shop import Shop

SHARED_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 2.0


class SharedHealth:
    def __init__(
        self, shop: Shop, *, shared_seconds: float = SHARED_SECONDS, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._shop = shop
        self._shared_seconds = shared_seconds
        self._timeout_seconds = timeout_seconds
        self._asking = asyncio.Lock()
        self._known: tuple[Health, int] | None = None
        self._until = 0.0

    async def get(self) -> tuple[Health, int]:
        async with self._asking:
            if self._known is None or time.monotonic() >= self._until:
                await self._shop.repository.prove()
                self._known = await self._ask(), await self._shop.settlement.count()
                self._until = time.monotonic() + self._shared_seconds
            return self._known

    async def _ask(self) -> Health:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._shop.provider.health()
        except TimeoutError:
            return Health(False, f"It did not answer within {self._timeout_seconds:g} s")
        except ProviderError as error:
            return Health(False, str(error))
