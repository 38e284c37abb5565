"""Platforms that do as they are asked, and lie about it: the simulators, with other answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.responses import Response

from telecom_cart.model import Context
from telecom_cart.provider import Line, Lookup
from telecom_cart.simulators.server import serving
from telecom_cart.simulators.simulation import Simulation
from tests.cart.shops import SimulatedShop, salesforce_shop, shopify_shop

PHONE = Line("phone-1", 1, 89_999)
FIRST = "cart-7-1"
Lie = Callable[[dict[str, Any]], object]
"""Another answer, of what the truth would have been: bytes as they are, a response, or a document."""

DEEP = b'{"a":' * 100_000 + b"}" * 100_000
UNKEEPABLE: tuple[object, ...] = (
    ["a", "b"],
    {"a": "b"},
    7,
    True,
    "",
    "\ud800",
    "a\x00b",
    "a\nb",
    "a\r\nX: y",
    "\u202ea",
    "\x1b[31m",
    "x" * 256,
    "x" * 100_001,
)
"""What no id is."""


@dataclass
class Lying:
    shop: SimulatedShop
    lies: dict[str, Lie] = field(default_factory=dict)
    """By the verb of the simulator."""
    reference: str = ""
    """Of the basket that was filled last: every order is asked for once."""

    @property
    def live_orders(self) -> int:
        return len([each for each in self.shop.orders() if each.is_live and each.reference == self.reference])

    async def filled(self) -> Context:
        provider = self.shop.provider
        context = await provider.create_cart(await provider.open_session(), [PHONE], currency="CAD")
        number = int(self.reference.split("-")[1]) + 1 if self.reference else 7
        self.reference = f"cart-{number}-1"
        await provider.set_reference(context, self.reference)
        return context


@asynccontextmanager
async def lying(platform: str, lookup: Lookup) -> AsyncIterator[Lying]:
    opened = {"salesforce": salesforce_shop, "shopify": shopify_shop}[platform]
    async with serving(platform) as (simulation, address), opened(simulation, address, lookup) as shop:
        told = Lying(shop)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulation, "answer", _answering(simulation, told.lies))
            yield told


def _answering(simulation: Simulation, lies: Mapping[str, Lie]) -> Callable[..., Any]:
    truly = simulation.answer

    async def answer(request: Any, verb: str, *given: Any, **named: Any) -> Response:
        response = await truly(request, verb, *given, **named)
        if verb not in lies:
            return response
        body = bytes(response.body)
        lie = lies[verb](json.loads(body) if body else {})
        if isinstance(lie, Response):
            return lie
        return Response(lie if isinstance(lie, bytes) else json.dumps(lie))

    return answer


def instead(**fields: object) -> Lie:
    """The truth, but for these fields of it."""
    return lambda truth: {**truth, **fields}


def within(*path: str | int, value: object) -> Lie:
    """The truth, but for what is at this place in it."""

    def lie(truth: dict[str, Any]) -> object:
        changed: Any = json.loads(json.dumps(truth))
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return changed

    return lie


def without(*path: str | int) -> Lie:
    def lie(truth: dict[str, Any]) -> object:
        changed: Any = json.loads(json.dumps(truth))
        place = changed
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        return changed

    return lie


def raw(body: bytes, status: int = 200, **headers: str) -> Lie:
    return lambda _: Response(body, status, {name.replace("_", "-"): value for name, value in headers.items()})
