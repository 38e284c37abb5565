"""How adapters speak HTTP: requests that may be repeated go out directly, and the one that may not through `Once`."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Protocol

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from telecom_cart.provider import ProviderError, Unreachable

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
SHOWN_CHARACTERS = 300
CONNECTIONS = 100
IDLE_SECONDS = 4.0
"""Servers commonly close a connection that was idle for five; a request on its way then is lost."""


@dataclass(frozen=True)
class Request:
    method: Method
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Once(Protocol):
    """Makes a request at most once for each id, whatever dies meanwhile; asked again with the same id, it answers what
    is known of that one request.

    Raises `Unreachable` if the request was certainly not made, and `Uncertain` if nobody can tell.
    """

    async def __call__(self, request: Request, *, request_id: str, timeout_seconds: float) -> Answer: ...


@dataclass(frozen=True)
class Patience:
    """How long requests that may be repeated are tried for."""

    timeout_seconds: float = 5.0
    tries: int = 3
    backoff_seconds: float = 0.1
    wait_seconds: float = 2.0
    """A platform that asks for a longer wait is not waited for."""


class Direct:
    """Makes requests directly, and those that may be repeated a few times."""

    def __init__(
        self, patience: Patience | None = None, *, throttled: Callable[[Answer], float | None] | None = None
    ) -> None:
        """`throttled`: for how many seconds an answer asks to wait, having done nothing. None: it does not."""
        self._patience = patience or Patience()
        self._throttled = throttled or throttled_for
        self._session: ClientSession | None = None

    async def __call__(self, request: Request, *, may_repeat: bool = True, tries: int | None = None) -> Answer:
        """An answer below 500. Raises `Unreachable` if there is none, and then the request may have had its effect."""
        bound = tries or self._patience.tries
        for turn in range(1, bound + 1):
            wait = self._patience.backoff_seconds * 2 ** (turn - 1) * random.uniform(0.5, 1.0)
            try:
                answer = await self._send(request)
            except (ClientConnectorError, ConnectionTimeoutError) as error:
                reason = f"No connection: {type(error).__name__}"
            except (ClientError, TimeoutError) as error:
                if not may_repeat:
                    raise Unreachable(f"No answer: {type(error).__name__}") from None
                reason = f"No answer: {type(error).__name__}"
            else:
                if (asked := self._throttled(answer)) is not None:
                    wait = max(wait, asked)
                    reason = "The platform wants fewer requests"
                elif answer.status < 500:
                    return answer
                elif not may_repeat:
                    raise Unreachable(f"The platform answered {answer.status}")
                else:
                    reason = f"The platform answered {answer.status}"
            if turn == bound or wait > self._patience.wait_seconds:
                raise Unreachable(reason)
            await asyncio.sleep(wait)
        raise AssertionError("a request is tried at least once")

    async def _send(self, request: Request) -> Answer:
        url = URL(request.url, encoded=True)
        async with self._opened().request(
            request.method, url, headers=request.headers, data=request.body or None, allow_redirects=False
        ) as got:
            return Answer(got.status, dict(got.headers), await got.read())

    def _opened(self) -> ClientSession:
        """Made at the first request, because it belongs to the event loop. Its connections serve many customers, so
        it keeps no cookies."""
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=self._patience.timeout_seconds),
                trust_env=True,
            )
            # It would send a DELETE again whose connection broke off: only we know what may be repeated.
            self._session._retry_connection = False
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def throttled_for(answer: Answer) -> float | None:
    """The seconds that a platform asks to wait for. None: it does not."""
    if answer.status != 429:
        return None
    asked = _header(answer, "retry-after")
    return float(asked) if re.fullmatch(r"\d{1,6}", asked) else 0.0


def told_time(answer: Answer) -> int | None:
    """What the clock of the platform said, in ms since the epoch. None: it said nothing."""
    try:
        return round(parsedate_to_datetime(_header(answer, "date")).timestamp() * 1000)
    except ValueError:
        return None


def _header(answer: Answer, wanted: str) -> str:
    return next((value for name, value in answer.headers.items() if name.lower() == wanted), "")


def document_of(answer: Answer) -> dict[str, Any] | None:
    """The JSON object of an answer, with exact numbers. None: it has none."""
    try:
        document = json.loads(answer.body, parse_float=Decimal)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


@contextmanager
def understood(error: type[ProviderError] = Unreachable) -> Iterator[None]:
    """Reads what a platform answered. An answer of another form than expected is this error."""
    try:
        yield
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise error("The platform's answer cannot be understood") from None


def shown(text: object) -> str:
    """What a platform said, fit for errors and logs: short, and without the secrets of basket ids and tokens."""
    hidden = re.sub(r"(?i)(key=|bearer\s+|token[=:]\s*)[^\s&\"',;)]+", r"\1***", str(text))
    return hidden[:SHOWN_CHARACTERS]


def minor_units(amount: object, currency: str) -> int | None:
    """An amount in the smallest coins, exactly. None: it is no such number."""
    try:
        coins = Decimal(str(amount)).scaleb(EXPONENTS.get(currency, 2))
    except ArithmeticError:
        return None
    return int(coins) if coins.is_finite() and coins == coins.to_integral_value() else None


EXPONENTS = {"BHD": 3, "CLP": 0, "ISK": 0, "JOD": 3, "JPY": 0, "KRW": 0, "KWD": 3, "OMR": 3, "TND": 3, "VND": 0}
"""The digits after the point, for currencies that have not two."""
