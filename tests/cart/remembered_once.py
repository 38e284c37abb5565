"""`Once` in memory: a request is made once for each id, and its answer is remembered."""

from __future__ import annotations

import asyncio

import httpx

from telecom_cart.provider import Uncertain, Unreachable
from telecom_cart.providers.http_calls import Answer, Request


class RememberingOnce:
    def __init__(self) -> None:
        self.made: dict[str, asyncio.Future[Answer]] = {}
        self._client = httpx.AsyncClient()

    async def __call__(self, request: Request, *, request_id: str, timeout_seconds: float) -> Answer:
        known = self.made.get(request_id)
        if known is None:
            known = self.made[request_id] = asyncio.ensure_future(self._send(request, timeout_seconds))
        return await asyncio.shield(known)

    async def _send(self, request: Request, timeout_seconds: float) -> Answer:
        try:
            got = await self._client.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
                timeout=timeout_seconds,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise Unreachable("No connection") from None
        except httpx.HTTPError as error:
            raise Uncertain(f"No answer: {type(error).__name__}") from None
        return Answer(got.status_code, dict(got.headers), got.content)

    async def close(self) -> None:
        await self._client.aclose()
