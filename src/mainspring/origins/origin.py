"""What users write: a class whose methods are plain functions, and whose state and fetches outlive the program.

    class Accounts(Origin):
        def open(self, customer: str) -> None:
            self.state["status"] = "checking"
            self.svc.proxy_fetch(f"https://example.com/customers/{customer}", self.ctn().checked(customer))

        def checked(self, customer: str, result: ResponseSync | FetchError) -> None:
            self.state["status"] = "open" if isinstance(result, ResponseSync) and result.ok else "refused"

A run of one method is a *unit*: its changes and the fetches it requests are committed together or, if it raises, not
at all. A unit may run again from the beginning if somebody else has changed the same origin in the meantime; so
anything that must happen only once belongs in the state or in a fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from mainspring.errors import InvalidInput, TooLarge
from mainspring.fetches.arguments import FetchFields, create_request, new_req_id
from mainspring.fetches.local_origins import address_of
from mainspring.fetches.messages import CreateFetch
from mainspring.origins.continuation import Continuation, Continuations, method_of
from mainspring.origins.document import State
from mainspring.origins.request import RequestSync
from mainspring.origins.services import Services

FETCHES_LIMIT: Final = 100
"""Fetches that one unit may request."""
DELIVERY_SECONDS: Final = 3 * 86_400.0
"""How long delivery of a result to a failing handler is attempted: a weekend, and the time to fix it."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class Origin:
    """The base of all origins. An object lives for one unit: only `state` is kept."""

    origin_name: ClassVar[str] = ""
    """Name of the stored state: that of the class, unless another is given so that the class can be renamed."""

    def __init_subclass__(cls, *, name: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.origin_name = name or cls.__name__
        if not _NAME.fullmatch(cls.origin_name):
            raise InvalidInput(f"Expected the name of an origin to be an identifier, got {cls.origin_name!r}")

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    @property
    def id(self) -> str:
        return self._unit.origin_id

    @property
    def state(self) -> State:
        return self._unit.state

    @property
    def svc(self) -> OriginServices:
        return OriginServices(self)

    def new_req_id(self) -> str:
        """A reqId for one `proxy_fetch` of this unit, to be put into its request or the state beforehand."""
        return self._unit.new_req_id()

    def ctn(self) -> Continuations:
        """Continuations: `self.ctn().method(arguments)` is called with the result after the arguments."""
        return Continuations(type(self))


class Unit:
    """One run of one method: the state it works on, and the fetches it requests."""

    def __init__(self, origin_id: str, state: State, services: Services, check: Callable[[CreateFetch], None]) -> None:
        """`check` refuses what could not be fetched while the caller can still be told."""
        self.origin_id = origin_id
        self.state = state
        self.services = services
        self.fetches: list[CreateFetch] = []
        self._check = check
        self._made: set[str] = set()
        """The reqIds that were made and not used."""

    def new_req_id(self) -> str:
        req_id = new_req_id()
        self._made.add(req_id)
        return req_id

    def ask(self, origin: type[Origin], request: CreateFetch, continuation: Continuation, req_id: str | None) -> str:
        if not isinstance(continuation, Continuation):
            raise InvalidInput(f"Expected a continuation, made by self.ctn(), got a {type(continuation).__name__}")
        method_of(origin, continuation.method)
        if len(self.fetches) >= FETCHES_LIMIT:
            raise TooLarge(f"Expected at most {FETCHES_LIMIT} fetches in one unit, got more")
        # One that was used before would name that fetch, whose result has been taken: nothing would ever come.
        if req_id is not None and req_id not in self._made:
            raise InvalidInput(
                f"Expected a reqId that self.new_req_id() made in this unit, unused, got {req_id!r:.200}"
            )
        req_id = self.new_req_id() if req_id is None else req_id
        asked = replace(
            request,
            req_id=req_id,
            result_url=address_of(origin.origin_name, self.origin_id),
            context=msgspec.Raw(msgspec.json.encode(continuation)),
            delivery_seconds=DELIVERY_SECONDS,
        )
        self._check(asked)
        self._made.discard(req_id)
        self.fetches.append(asked)
        return req_id


class OriginServices:
    """`self.svc`: the services of the program, and `proxy_fetch`."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def proxy_fetch(
        self,
        request: RequestSync | str,
        continuation: Continuation,
        *,
        timeout: float = 30.0,
        executor: str = "",
        labels: dict[str, str] | None = None,
        req_id: str | None = None,
    ) -> str:
        """Like the function of that name."""
        return proxy_fetch(
            self._origin, request, continuation, timeout=timeout, executor=executor, labels=labels, req_id=req_id
        )

    def __getattr__(self, name: str) -> Any:
        return self._origin._unit.services.get(name)


def proxy_fetch(
    origin: Origin,
    request: RequestSync | str,
    continuation: Continuation,
    *,
    timeout: float = 30.0,
    executor: str = "",
    labels: dict[str, str] | None = None,
    req_id: str | None = None,
) -> str:
    """Request a call, and have the continuation called with its result. Returns the reqId at once.

    Nothing is sent before the unit is committed, and nothing at all if it is not. The call is made at most once; the
    continuation takes effect exactly once, with a `ResponseSync` or a `FetchError`. `executor` names a pool; `req_id`
    is one that `origin.new_req_id()` has made, for a request that is to contain it.
    """
    asked = RequestSync(request) if isinstance(request, str) else request
    fields: FetchFields = {
        "method": asked.method,
        "headers": asked.headers,
        "max_redirects": asked.max_redirects,
        "timeout_seconds": timeout,
        "labels": labels or {},
    }
    if asked.bytes():
        fields["body"] = asked.bytes()
    if executor:
        fields["executor"] = executor
    return origin._unit.ask(type(origin), create_request(asked.url, **fields), continuation, req_id)
