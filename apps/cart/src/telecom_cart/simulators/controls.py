"""`/_sim`: how tests and people steer a simulator, and see what it saw."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.platform import Platform, StoredOrder
from telecom_cart.simulators.simulation import Simulation

HELP = {
    "GET /_sim/state": "clock, settings, baskets, faults, orders",
    "GET /_sim/ledger": "all calls and orders; ?after=N skips the first N calls",
    "POST /_sim/clock": '{"advance": 1800} moves the clock of the shop',
    "POST /_sim/settings": "any of what `settings` of the state shows",
    "POST /_sim/faults": '{"verb": "checkout", "kind": "applyThenDrop", "times": 1, "seconds": 1}; times null: always',
    "GET /_sim/faults": "those that wait, and the verbs and kinds there are",
    "DELETE /_sim/faults": "no more faults",
    "POST /_sim/expire": '{"basketId": "..."} or {} for all baskets',
    "DELETE /_sim/tokens": "let everybody log in again",
    "POST /_sim/reset": "forget everything",
    "POST /_sim/orders": '{"reference": "..."} makes an order from nowhere; with "number" and "status" it changes one',
}
SETTINGS = {
    "contextLifeSeconds": ("platform", "life_seconds", float),
    "lookupLagSeconds": ("platform", "lookup_lag_seconds", float),
    "lingersSeconds": ("platform", "lingers_seconds", float),
    "losesReferences": ("platform", "loses_references", bool),
    "blind": ("platform", "is_blind", bool),
    "priceDrift": ("platform", "price_drift", int),
    "doublesLines": ("platform", "doubles_lines", bool),
    "prices": ("platform", "prices", dict),
    "tokenLifeSeconds": ("simulation", "token_life_seconds", float),
    "orderNoFromReference": ("simulation", "order_number_from_reference", bool),
    "strict": ("simulation", "is_strict", bool),
}


class Wrong(Exception):
    """A command that cannot be understood."""


def routes(simulation: Simulation) -> list[Route]:
    controls = _Controls(simulation)
    table: list[tuple[str, str, Callable[[dict[str, Any]], object]]] = [
        ("GET", "", lambda _: HELP),
        ("GET", "/state", lambda _: controls.state()),
        ("GET", "/ledger", controls.ledger),
        ("POST", "/clock", controls.clock),
        ("POST", "/settings", controls.change),
        ("GET", "/faults", lambda _: controls.faults()),
        ("POST", "/faults", controls.add_fault),
        ("DELETE", "/faults", lambda _: controls.clear_faults()),
        ("POST", "/expire", controls.expire),
        ("DELETE", "/tokens", lambda _: controls.forget_tokens()),
        ("POST", "/orders", controls.order),
        ("POST", "/reset", lambda _: controls.reset()),
    ]
    return [Route(f"/_sim{path}", _endpoint(act), methods=[method]) for method, path, act in table]


def _endpoint(act: Callable[[dict[str, Any]], object]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            given = await request.json() if await request.body() else dict(request.query_params)
            if not isinstance(given, dict):
                raise Wrong("Expected a JSON object")
            return JSONResponse(act(given))
        except (Wrong, ValueError) as error:
            return JSONResponse({"detail": str(error)}, 400)

    return endpoint


class _Controls:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    @property
    def platform(self) -> Platform:
        return self.simulation.platform

    def state(self) -> object:
        baskets = [
            {
                "id": basket.id,
                "session": basket.session,
                "currency": basket.currency,
                "reference": basket.reference,
                "closed": basket.is_closed,
                "expiresInSeconds": round(basket.expires_at - self.platform.now(), 3),
                "lines": [asdict(line) for line in self.platform.lines(basket).values()],
                "subtotal": self.platform.subtotal(basket),
            }
            for basket in list(self.platform.baskets.values())
            if self.platform.basket(basket.id)
        ]
        return {
            "platform": self.simulation.name,
            "clock": self.platform.now(),
            "settings": {name: getattr(self._owner(where), field) for name, (where, field, _) in SETTINGS.items()},
            "baskets": baskets,
            "faults": self.faults()["waiting"],
            "orders": self._orders(),
        }

    def ledger(self, given: dict[str, Any]) -> object:
        after = int(_number(given, "after", 0))
        calls = [asdict(entry) for entry in self.platform.ledger[after:]]
        return {"calls": calls, "orders": self._orders(), "next": after + len(calls)}

    def clock(self, given: dict[str, Any]) -> object:
        self.simulation.offset += _number(given, "advance", 0)
        self.platform.catch_up()
        return {"clock": self.platform.now()}

    def change(self, given: dict[str, Any]) -> object:
        for name, value in given.items():
            if name not in SETTINGS:
                raise Wrong(f"There is no setting {name!r}, but: {', '.join(SETTINGS)}")
            kind = SETTINGS[name][2]
            if not isinstance(value, int if kind is float and isinstance(value, int) else kind):
                raise Wrong(f"{name} is a {kind.__name__}")
        for name, value in given.items():
            where, field, kind = SETTINGS[name]
            setattr(self._owner(where), field, kind(value))
        return self.state()

    def faults(self) -> dict[str, object]:
        by_verb = self.simulation.faults.by_verb
        waiting = [{"verb": verb, **asdict(fault)} for verb, faults in by_verb.items() for fault in faults]
        return {"waiting": waiting, "verbs": ["*", *self.simulation.verbs], "kinds": [*FaultKind]}

    def add_fault(self, given: dict[str, Any]) -> object:
        verb = given.get("verb", "*")
        if verb != "*" and verb not in self.simulation.verbs:
            raise Wrong(f"There is no verb {verb!r}, but: *, {', '.join(self.simulation.verbs)}")
        if given.get("kind") not in list(FaultKind):
            raise Wrong(f"There is no fault {given.get('kind')!r}, but: {', '.join(FaultKind)}")
        times = given.get("times", 1)
        if times is not None and (not isinstance(times, int) or times < 1):
            raise Wrong("times is a number from 1, or null for always")
        self.simulation.add_fault(verb, Fault(FaultKind(given["kind"]), times, _number(given, "seconds", 1.0)))
        return self.faults()

    def clear_faults(self) -> object:
        self.simulation.faults.clear()
        return self.faults()

    def expire(self, given: dict[str, Any]) -> object:
        return {"expired": self.platform.expire(self.simulation.platform_id(str(given.get("basketId", ""))))}

    def forget_tokens(self) -> object:
        self.simulation.forget_tokens()
        return {}

    def reset(self) -> object:
        self.simulation.reset()
        return self.state()

    def order(self, given: dict[str, Any]) -> object:
        if number := str(given.get("number", "")):
            self.platform.set_status(number, str(given.get("status", "created")))
        else:
            basket_id = self.simulation.platform_id(str(given.get("basketId", "")))
            reference = str(given.get("reference", ""))
            made_at = self.platform.now()
            self.platform.plant(StoredOrder(self.platform.next_id("o"), reference, basket_id, (), 0, made_at))
        return {"orders": self._orders()}

    def _orders(self) -> list[dict[str, object]]:
        return [{**asdict(order), "is_live": order.is_live} for order in self.platform.orders]

    def _owner(self, where: str) -> object:
        return self.platform if where == "platform" else self.simulation


def _number(given: dict[str, Any], name: str, default: float) -> float:
    try:
        value = float(given.get(name, default))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise Wrong(f"{name} is a number from 0")
    return value
