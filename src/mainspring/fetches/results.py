"""Brings results to their origins: POSTed, signed, again and again until acknowledged, gone, or past the deadline.

All offers of one result carry the same `webhook-id`, the reqId, by which an origin knows a repeat. A result for an
origin inside a program that is not this one is left: it stays as it is, marked for those who know the origin.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

import mainspring
from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Call, Reply, Sends
from mainspring.delivery.retry_after import retry_after_ms
from mainspring.delivery.signing import sign
from mainspring.fetches.inside import InsideSender, is_inside, name_in
from mainspring.fetches.memory import FetchMemory, while_offered
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import Fetch, Return
from mainspring.fetches.registry import LARGE_BYTES, FetchRegistry
from mainspring.fetches.views import result_of
from mainspring.kernel.backoff import wait_ms
from mainspring.model import RetryPolicy
from mainspring.namespaces.service import DEFAULT, NamespaceService

OFFER_TIMEOUT_MS: Final = 30_000
_ENDLESS: Final = 1_000_000


class Results:
    def __init__(
        self,
        *,
        sender: Sends,
        registry: FetchRegistry,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        memory: FetchMemory,
    ) -> None:
        self._sender = sender
        self.memory = memory
        self._writing = asyncio.Lock()
        self._registry = registry
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness

    def reaches(self, fetch: Fetch) -> bool:
        """Whether a result can be brought to its origin from here. An executor of a pool has no program in it."""
        url = fetch.result_url or ""
        return self._sender.reaches(url) if isinstance(self._sender, InsideSender) else not is_inside(url)

    @asynccontextmanager
    async def found(self, req_id: str, *, site: str) -> AsyncIterator[Fetch | None]:
        """A fetch whose result is about to be offered, read when there is memory for it."""
        with self.memory.share(site) as memory:
            await memory.take(self.memory.largest)
            fetch = await self._registry.find(req_id)
            memory.keep(while_offered(None if fetch is None else fetch.outcome))
            yield fetch

    async def leave(self, fetch: Fetch) -> Fetch | None:
        """Mark a result as one that cannot be offered from here; the fetch as it then stands."""
        detail = f"Waits for a program that knows the origin {name_in(fetch.result_url or '')}."
        return await self._registry.offered(fetch, lambda delivery: replace(delivery, left=True, detail=detail))

    async def offer(self, fetch: Fetch, outcome: Outcome, *, timeout_ms: int = OFFER_TIMEOUT_MS) -> Fetch | None:
        """Offer the result once and record how that ended; the fetch as it then stands."""
        secrets = (await self._namespaces.find(DEFAULT)).secrets
        if outcome.response is not None and len(outcome.response.body) > LARGE_BYTES:
            async with self._writing:  # one in a turn of the loop: it takes a while, and others want to be served
                await asyncio.sleep(0)
        now = self._clock.now_ms()
        reply = await self._sender.send(offering(fetch, outcome, secrets, now=now, timeout_ms=timeout_ms))
        crashpoint.reach(crashpoint.FETCH_DELIVERED)
        spread = self._random.random()
        ended_at = self._clock.now_ms()

        def offered(delivery: Return) -> Return:
            return judged(delivery, reply, outcome, delivery_ms=fetch.delivery_ms, now=ended_at, spread=spread)

        after = await self._registry.offered(fetch, offered)
        if after is not None and after.delivery.state != "waiting":
            telemetry.fetch_deliveries.add(after.delivery.state)
        if after is not None and after.delivery.state == "failed":
            telemetry.warning("a result did not reach its origin", req_id=fetch.req_id, reason=after.delivery.detail)
        return after


def offering(fetch: Fetch, outcome: Outcome, secrets: tuple[str, ...], *, now: int, timeout_ms: int) -> Call:
    """The request of one offer."""
    body = msgspec.json.encode(result_of(fetch, outcome))
    timestamp = now // 1000
    headers = (
        ("content-type", "application/json"),
        ("user-agent", f"mainspring/{mainspring.__version__}"),
        ("webhook-id", fetch.req_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", sign(secrets, message_id=fetch.req_id, timestamp=timestamp, body=body)),
        ("idempotency-key", fetch.req_id),
        ("mainspring-attempt", str(fetch.delivery.attempts + 1)),
    )
    return Call("POST", fetch.result_url or "", headers, body, timeout_ms)


def judged(delivery: Return, reply: Reply, outcome: Outcome, *, delivery_ms: int, now: int, spread: float) -> Return:
    """What an offer means: 2xx acknowledges, 410 ends, everything else is tried again until the deadline."""
    attempts = delivery.attempts + (reply.problem != "exhausted")
    tried = replace(delivery, attempts=attempts, last_status=reply.status, left=False)
    if reply.status is not None and 200 <= reply.status < 300:
        return replace(tried, state="delivered", detail="", delivered_at=now)
    detail = reply.detail or f"The origin answered {reply.status}."
    if reply.status == 410:
        return replace(tried, state="failed", detail=f"{detail} It wants no more.")
    policy = RetryPolicy(max_attempts=_ENDLESS, max_elapsed_seconds=delivery_ms / 1000)
    wait = wait_ms(
        policy,
        attempts=max(1, attempts),
        elapsed_ms=now - outcome.finished_at,
        spread=spread,
        at_least_ms=retry_after_ms(reply.headers.get("retry-after", ""), now),
    )
    if wait is None:
        seconds = delivery_ms / 1000
        return replace(tried, state="failed", detail=f"{detail} It was offered for {seconds:g} s, {attempts} times.")
    return replace(tried, detail=detail, next_at=now + wait)
