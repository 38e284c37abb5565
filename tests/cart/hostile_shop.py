"""A shop in front of a platform that lies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring import Mainspring
from telecom_cart.checkout import Placed, Wish
from telecom_cart.errors import CartError
from telecom_cart.model import Item
from telecom_cart.once import FetchOnce
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop
from tests.cart.lying_platform import Lying, lying
from tests.cart.shops import STRONG

ITEM = Item("phone-1", "Phone", "device", 1, 899_99)
HASTE = Settings(sync_delay_seconds=0.01, answer_seconds=5, retry_initial_seconds=0.2, retry_max_seconds=0.5)


@asynccontextmanager
async def shopping(platform: str, folder: Path) -> AsyncIterator[tuple[Lying, Shop]]:
    async with lying(platform, STRONG) as told:
        ms = Mainspring(f"sqlite:///{folder}/cart.db", allow_loopback=True)
        told.shop.provider._once = FetchOnce(ms)  # type: ignore[attr-defined]
        shop = Shop(ms, told.shop.provider, HASTE)
        async with ms, shop:
            yield told, shop


async def asked(shop: Shop) -> Placed | CartError:
    try:
        return await shop.checkouts.run("ann", Wish())
    except CartError as error:
        return error
