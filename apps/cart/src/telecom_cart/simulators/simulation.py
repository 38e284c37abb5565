"""What all simulators have in common: a clock that can be moved, faults, dropped connections, and the ledger.

A request is one step: its act runs to the end without waiting, so ordering and closing exclude each other.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform, befall

VERBS = (
    "open_session",
    "create_cart",
    "add_item",
    "remove_item",
    "get_cart",
    "validate_context",
    "set_reference",
    "checkout",
    "find_order",
    "close_cart",
    "health",
)


@dataclass(frozen=True)
class Reply:
    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    effect: str = "done"
    """What the ledger says of it."""

    def response(self) -> Response:
        if self.body is None:
            return Response(status_code=self.status, headers=dict(self.headers))
        media_type = "application/problem+json" if self.status >= 400 else "application/json"
        return JSONResponse(self.body, self.status, dict(self.headers), media_type)


class Dropped(Response):
    """No answer: the connection is closed."""

    def __init__(self, drop: Callable[[Request], None], request: Request) -> None:
        super().__init__()
        self._drop, self._request = drop, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._drop(self._request)
        while (await receive())["type"] != "http.disconnect":
            pass


class Simulation:
    """One simulated shop."""

    name = ""
    aliases: Mapping[str, str] = {}
    """Verbs that are the same request as another here."""
    extra_verbs: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.drop: Callable[[Request], None] = lambda _: None
        """Closes the connection of a request; known to the server."""
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.offset = 0.0
        self.platform = Platform(self.now, run=secrets.token_hex(3))
        self.faults = Faults()
        self.token_life_seconds = 1800.0
        self.order_number_from_reference = True
        self.is_strict = False
        """Orders need addresses, shipping and payment, which the cart does not send."""
        self.denied: tuple[str, ...] = ()
        """Verbs that these credentials may not use."""

    def now(self) -> float:
        return time.time() + self.offset

    def throttled(self) -> Reply:
        raise NotImplementedError

    def failed(self, status: int) -> Reply:
        raise NotImplementedError

    def refused(self) -> Reply:
        """What a repeat of a request gets whose first one was taken."""
        raise NotImplementedError

    def _instead(self, kind: FaultKind) -> Reply:
        """What is answered although it happened."""
        match kind:
            case FaultKind.APPLY_THEN_THROTTLE:
                return self.throttled()
            case FaultKind.APPLY_THEN_REFUSE:
                return self.refused()
            case _:
                return self.failed(500)

    def platform_id(self, basket_id: str) -> str:
        """The platform's name of a basket, of the name that the cart knows."""
        return basket_id

    def forget_tokens(self) -> None:
        """Let everybody log in again."""

    @property
    def verbs(self) -> tuple[str, ...]:
        return (*VERBS, *self.extra_verbs)

    def add_fault(self, verb: str, fault: Fault) -> None:
        self.faults.add(self.aliases.get(verb, verb), fault)

    async def answer(
        self,
        request: Request,
        verb: str,
        act: Callable[[], Reply],
        *,
        basket_id: str = "",
        session: str = "",
        failing: Callable[[], Reply] | None = None,
        accepting: Callable[[float], Reply] | None = None,
    ) -> Response:
        """Do what is asked, unless a fault befalls it. `accepting`: to do it only so many seconds later."""

        def noted(what: Callable[[], Reply], prefix: str = "") -> Reply:
            reply = what()
            self.platform.note(verb, basket_id, prefix + reply.effect)
            return reply

        def late() -> None:
            noted(act, "late: ")

        def told(reply: Reply) -> Response:
            return replace(reply, headers={**reply.headers, "Date": formatdate(self.now(), usegmt=True)}).response()

        fault = self.faults.take(self.aliases.get(verb, verb))
        if fault is None:
            return told(noted(act))
        befall(self.platform, fault, basket_id=basket_id, session=session)
        match fault.kind:
            case FaultKind.DOWN | FaultKind.APPLY_THEN_DROP:
                noted(act if fault.kind is FaultKind.APPLY_THEN_DROP else lambda: Reply(0, effect="down"))
                return Dropped(self.drop, request)
            case FaultKind.PROCESSING | FaultKind.PROCESSING_THEN_DROP if accepting is not None:
                accept, seconds = accepting, fault.seconds
                reply = noted(lambda: accept(seconds))
                if fault.kind is FaultKind.PROCESSING_THEN_DROP:
                    return Dropped(self.drop, request)
            case FaultKind.FAIL_BEFORE:
                reply = noted(lambda: self.failed(503))
            case FaultKind.THROTTLE:
                reply = noted(self.throttled)
            case FaultKind.APPLY_LATER:
                self.platform.later(fault.seconds, late)
                reply = noted(lambda: self.failed(504))
            case FaultKind.APPLY_THEN_5XX | FaultKind.APPLY_THEN_THROTTLE | FaultKind.APPLY_THEN_REFUSE:
                noted(act)
                reply = self._instead(fault.kind)
            case FaultKind.FAILED_ORDER_400 if failing is not None:
                reply = noted(failing)
            case FaultKind.PRICE_DRIFT:
                with self.platform.drifted():
                    reply = noted(act)
            case _:
                await asyncio.sleep(fault.seconds if fault.kind is FaultKind.DELAY else 0)
                reply = noted(act)
        return told(reply)
