"""The request that makes an order, as a fetch of Mainspring: made at most once, and its result outlives the process.

The id of the fetch is the reference of the attempt. A process that is killed while it waits, and whoever asks again in
its place, gets the result that is recorded, or hears that nobody can tell; nothing is sent again.
"""

from __future__ import annotations

from mainspring import Mainspring
from telecom_cart.provider import Uncertain, Unreachable
from telecom_cart.providers.answers import shown
from telecom_cart.providers.http_calls import Answer, Request


class FetchOnce:
    def __init__(self, ms: Mainspring) -> None:
        self._ms = ms

    async def __call__(self, request: Request, *, request_id: str, timeout_seconds: float) -> Answer:
        result = await self._ms.fetch(
            request.url,
            method=request.method,
            headers=dict(request.headers),
            body=request.body,
            req_id=request_id,
            timeout_seconds=timeout_seconds,
            max_redirects=0,
        )
        if result.response is not None and result.response.truncated:
            raise Uncertain("The platform's answer to an order did not come whole")
        if result.response is not None:
            headers = {name.lower(): value for name, value in result.response.headers.items()}
            return Answer(result.response.status, headers, result.response.content)
        told = shown(result.error.message) if result.error is not None else ""
        if result.error is not None and result.error.definite:
            raise Unreachable("The request was not made", told=told)
        raise Uncertain("Nobody can tell what became of the request", told=told)
