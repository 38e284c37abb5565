"""A connection to one server: requests out, typed answers or errors back; repeated only where that is harmless."""

from __future__ import annotations

import logging
from typing import TypeVar

import msgspec

from mainspring.client.discovery import find_token, find_url
from mainspring.client.reply import Repeat, error_of, longest_span_seconds, value_of, wait_before_repeat
from mainspring.client.transport import AsyncTransport
from mainspring.delivery.call import Call, Reply
from mainspring.errors import ConfigError
from mainspring.wire.message import Message

T = TypeVar("T")

_log = logging.getLogger("mainspring.client")


class AsyncConnection:
    """What all resources of a client share."""

    def __init__(
        self, *, url: str | None, token: str | None, timeout: float, retries: int, transport: AsyncTransport
    ) -> None:
        if not isinstance(timeout, int | float) or not 0 < timeout <= 3600:
            raise ConfigError(f"Expected a timeout of more than 0 and up to 3600 s, got {timeout!r:.100}")
        if not isinstance(retries, int) or not 0 <= retries <= 100:
            raise ConfigError(f"Expected 0 to 100 retries, got {retries!r:.100}")
        self.url = find_url(url)
        self._timeout_ms = round(timeout * 1000)
        self._retries = retries
        self._headers = self._standing_headers(find_token(token, url=self.url))
        self._transport = transport
        self.longest_span_seconds = longest_span_seconds(timeout=timeout, retries=retries)
        """No request is still being sent this long after its first sending."""

    async def open(self) -> None:
        await self._transport.open()

    async def close(self) -> None:
        await self._transport.close()

    async def pause(self, seconds: float) -> None:
        await self._transport.pause(seconds)

    def monotonic(self) -> float:
        return self._transport.monotonic()

    async def post(self, path: str, message: Message, answer: type[T], *, repeat: Repeat) -> T:
        reply = await self._exchange("POST", path, msgspec.json.encode(message), repeat)
        return value_of(reply, answer)

    async def get(self, path: str, *, repeat: Repeat) -> Reply:
        return await self._exchange("GET", path, b"", repeat)

    async def _exchange(self, method: str, path: str, body: bytes, repeat: Repeat) -> Reply:
        call = Call(method, self.url + path, self._headers, body, self._timeout_ms)
        tries, doubtful = 0, False
        while True:
            reply = await self._transport.send(call)
            tries += 1
            _log.debug("%s %s: %s in %d ms", method, path, reply.status or reply.problem, reply.duration_ms)
            error = error_of(reply)
            if error is None:
                return reply
            wait = wait_before_repeat(reply, error, repeat, tries=tries, retries=self._retries)
            if wait is None:
                if doubtful and not error.outcome_unknown:
                    error.add_note("An earlier attempt at this request got no clear answer and may have taken effect.")
                error.outcome_unknown = not repeat.reads and (error.outcome_unknown or doubtful)
                raise error
            doubtful = not repeat.reads and (doubtful or error.outcome_unknown)
            _log.info("%s %s will be sent again in %.2f s: %s", method, path, wait, error.detail)
            await self._transport.pause(wait)

    @staticmethod
    def _standing_headers(token: str) -> tuple[tuple[str, str], ...]:
        headers = (("content-type", "application/json"), ("accept", "application/json"))
        return (*headers, ("authorization", f"Bearer {token}")) if token else headers
