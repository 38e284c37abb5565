"""How adapters speak HTTP: requests that may be repeated go out directly, and the one that may not through `Once`."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from telecom_cart.provider import Unreachable

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
MOST_BYTES = 2_000_000
"""Of an answer. The longest is a page of orders."""
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
    """If the platform asks for a longer wait, give up."""


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
            return Answer(got.status, dict(got.headers), await _bounded(got))

    def _opened(self) -> ClientSession:
        """Made at the first request, because it belongs to the event loop. Its connections serve many customers, so
        it keeps no cookies."""
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=self._patience.timeout_seconds),
                # A packed answer of a few bytes can be unpacked to any size.
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
                trust_env=True,
            )
            # It would send a DELETE again whose connection broke off: only we know what may be repeated.
            self._session._retry_connection = False
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _bounded(got: ClientResponse) -> bytes:
    if got.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unreachable("The platform's answer is compressed, which was not requested")
    body = bytearray()
    async for part in got.content.iter_any():
        body += part
        if len(body) > MOST_BYTES:
            raise Unreachable(f"The platform's answer has more than {MOST_BYTES} bytes")
    return bytes(body)


def throttled_for(answer: Answer) -> float | None:
    """The seconds that a platform asks to wait for. None: it does not."""
    if answer.status != 429:
        return None
    asked = header_of(answer, "retry-after")
    return float(asked) if re.fullmatch(r"\d{1,6}", asked) else 0.0


def header_of(answer: Answer, wanted: str) -> str:
    return next((value for name, value in answer.headers.items() if name.lower() == wanted), "")
