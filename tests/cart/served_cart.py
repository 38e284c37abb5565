"""The cart's application over HTTP, in this process, with the double as its platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from mainspring import Mainspring
from telecom_cart.api.app import create_app
from telecom_cart.api.health import SharedHealth
from telecom_cart.model import SyncStatus
from telecom_cart.provider import Lookup
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop

PHONE: dict[str, Any] = {"productId": "phone-1", "name": "Phone", "type": "device", "quantity": 1, "price": 799_00}
PLAN: dict[str, Any] = {"productId": "plan-20", "name": "Plan", "type": "plan", "quantity": 2, "price": 45_00}


@dataclass
class Served:
    client: httpx.AsyncClient
    shop: Shop
    provider: DoubleProvider

    @property
    def platform(self) -> Platform:
        return self.provider.platform

    def fault(self, verb: str, kind: FaultKind, *, times: int | None = 1, seconds: float = 1.0) -> None:
        self.provider.faults.add(verb, Fault(kind, times, seconds))

    async def add(self, user: str = "ann", item: dict[str, Any] = PHONE, **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/carts/{user}/items", json=item, headers=_named(headers))

    async def check_out(self, user: str = "ann", *, body: object = None, **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/carts/{user}/checkout", json=body, headers=_named(headers))

    async def cart(self, user: str = "ann") -> dict[str, Any]:
        got: dict[str, Any] = (await self.client.get(f"/v1/carts/{user}")).json()
        return got

    async def synced(self, user: str = "ann") -> None:
        async with asyncio.timeout(10):
            while (await self.cart(user))["syncStatus"] == SyncStatus.PENDING:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _named(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}


@asynccontextmanager
async def served(*, lookup: Lookup | None = None, **settings: Any) -> AsyncIterator[Served]:
    ms = Mainspring("memory://")
    loop = asyncio.get_running_loop()
    provider = DoubleProvider(Platform(loop.time), faults=Faults(), lookup=lookup, latency_seconds=0.001)
    shop = Shop(ms, provider, Settings(**{"sync_delay_seconds": 0.01, **settings}))
    async with ms, shop:
        app = create_app(shop, health=SharedHealth(shop, shared_seconds=0.05, timeout_seconds=0.2))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://cart") as client:
            yield Served(client, shop, provider)
