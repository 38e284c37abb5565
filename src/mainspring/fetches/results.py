"""Brings results to their origins, again and again until acknowledged, gone, or past the deadline: POSTed, signed, or
handed to a function of this program.

All offers of one result carry the same `webhook-id`, the reqId, by which an origin recognises a repeat. A result for
an origin inside another program is left: it stays as it is, marked for those who know the origin.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.background import guarded
from mainspring.clock import Clock
from mainspring.delivery.call import Call, Sends
from mainspring.delivery.webhook import CORRELATION_ID, retry_after_ms, signed_headers
from mainspring.fetches.failures import FetchFailures
from mainspring.fetches.local_origins import LocalOrigins, is_inside, name_in
from mainspring.fetches.memory import FetchMemory, Share, while_offered
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.places import Places, site_of_place
from mainspring.fetches.record import FIRST_OFFER_MS, Fetch, ResultReturn
from mainspring.fetches.registry import LARGE_BYTES, FetchRegistry
from mainspring.fetches.views import result_of
from mainspring.kernel.backoff import wait_ms
from mainspring.model import RetryPolicy
from mainspring.namespaces.service import DEFAULT, NamespaceService

OFFER_TIMEOUT_MS: Final = 30_000
_ENDLESS: Final = 1_000_000


class OriginAnswer(NamedTuple):
    """What an origin said about a result."""

    status: int | None
    detail: str
    was_asked: bool = True
    """False: we lacked a descriptor for the call, or something else of our own."""
    wait_ms: int = 0
    """How long it asks to be left alone."""


class Results:
    def __init__(
        self,
        *,
        sender: Sends,
        inside: LocalOrigins | None,
        registry: FetchRegistry,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        memory: FetchMemory,
        host_of: Callable[[str], str],
        origins: Places,
        failures: FetchFailures,
    ) -> None:
        """`inside` knows the origins of this program. An executor of a pool has none. `host_of` names the host of an
        origin; `origins` are the places that origins share for their first offers."""
        self._sender = sender
        self._inside = inside
        self._failures = failures
        self.origins = origins
        self._memory = memory
        self._host_of = host_of
        self._writing = asyncio.Lock()
        self._registry = registry
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness

    def reaches(self, fetch: Fetch) -> bool:
        """Whether a result can be brought to its origin from here."""
        url = fetch.result_url or ""
        return not is_inside(url) if self._inside is None else self._inside.reaches(url)

    def share(self, url: str) -> Share:
        """A share of the memory, for a result that is offered there."""
        host = self._host_of(url)
        return self._memory.share(site_of_place(host), partial(self.origins.tier_of, host))

    @asynccontextmanager
    async def found(self, req_id: str, url: str) -> AsyncIterator[Fetch | None]:
        """A fetch whose result is about to be offered there, read when there is memory for it."""
        with self.share(url) as memory:
            await memory.take()
            fetch = await self._registry.find(req_id)
            size = 0 if fetch is None else while_offered(fetch.outcome)
            if size > memory.size:
                fetch = None
                await memory.take(size)
                fetch = await self._registry.find(req_id)
                size = 0 if fetch is None else while_offered(fetch.outcome)
            memory.keep(size)
            yield fetch

    async def leave(self, fetch: Fetch) -> Fetch | None:
        """Mark a result as one that cannot be offered from here; returns the fetch as it then stands."""
        detail = f"Waits for a program that knows the origin {name_in(fetch.result_url or '')}."
        return await self._registry.offered(fetch, lambda delivery: replace(delivery, left=True, detail=detail))

    def first_offer_ms(self, url: str) -> int:
        """How long the first offer to an origin may take. Others wait a little longer before they make the next."""
        return self._inside.handler_ms if self._inside is not None and is_inside(url) else FIRST_OFFER_MS

    async def offer(self, fetch: Fetch, outcome: Outcome, *, timeout_ms: int = OFFER_TIMEOUT_MS) -> Fetch | None:
        """Offer the result once and record how that ended; returns the fetch as it then stands. An origin inside this
        program has a time of its own."""
        if outcome.response is not None and len(outcome.response.body) > LARGE_BYTES:
            async with self._writing:  # one per turn of the loop: it takes a while, and others want to be served
                await asyncio.sleep(0)
        answer = await self._answer(fetch, outcome, timeout_ms=timeout_ms)
        crashpoint.reach(crashpoint.FETCH_DELIVERED)
        if answer.was_asked:
            self.origins.record(self._host_of(fetch.result_url or ""), reachable=answer.status is not None)
        spread = self._random.random()
        ended_at = self._clock.now_ms()

        def offered(delivery: ResultReturn) -> ResultReturn:
            return judged(delivery, answer, outcome, delivery_ms=fetch.delivery_ms, now=ended_at, spread=spread)

        after = await self._registry.offered(fetch, offered)
        if after is not None and after.delivery.state != "waiting":
            telemetry.fetch_deliveries.add(after.delivery.state)
        if after is not None and after.delivery.state in ("failed", "waiting"):
            with guarded("a failure got no line"):
                self._failures.tell_offer(after)
        return after

    async def _answer(self, fetch: Fetch, outcome: Outcome, *, timeout_ms: int) -> OriginAnswer:
        url = fetch.result_url or ""
        if self._inside is not None and is_inside(url):
            objection = await self._inside.receive(url, result_of(fetch, outcome))
            return OriginAnswer(500 if objection else 200, objection)
        secrets = (await self._namespaces.find(DEFAULT)).secrets
        now = self._clock.now_ms()
        reply = await self._sender.send(offering(fetch, outcome, secrets, now=now, timeout_ms=timeout_ms))
        wait = retry_after_ms(reply.headers.get("retry-after", ""), self._clock.now_ms())
        return OriginAnswer(reply.status, reply.detail, was_asked=reply.problem != "exhausted", wait_ms=wait)


def offering(fetch: Fetch, outcome: Outcome, secrets: tuple[str, ...], *, now: int, timeout_ms: int) -> Call:
    """The request of one offer."""
    body = msgspec.json.encode(result_of(fetch, outcome))
    attempt = fetch.delivery.attempts + 1
    headers = (
        ("content-type", "application/json"),
        *signed_headers(secrets, delivery_id=fetch.req_id, body=body, attempt=attempt, now=now),
        *(((CORRELATION_ID, fetch.correlation_id),) if fetch.correlation_id else ()),
    )
    return Call("POST", fetch.result_url or "", headers, body, timeout_ms)


def judged(
    delivery: ResultReturn, answer: OriginAnswer, outcome: Outcome, *, delivery_ms: int, now: int, spread: float
) -> ResultReturn:
    """What an offer means: 2xx acknowledges, 410 ends, everything else is tried again until the deadline."""
    attempts = delivery.attempts + answer.was_asked
    tried = replace(delivery, attempts=attempts, last_status=answer.status, left=False)
    if answer.status is not None and 200 <= answer.status < 300:
        return replace(tried, state="delivered", detail="", delivered_at=now)
    detail = answer.detail or f"The origin answered {answer.status}."
    if answer.status == 410:
        return replace(tried, state="failed", detail=f"{detail} It will not come back.")
    policy = RetryPolicy(max_attempts=_ENDLESS, max_elapsed_seconds=delivery_ms / 1000)
    wait = wait_ms(
        policy,
        attempts=max(1, attempts),
        elapsed_ms=now - (outcome.finished_at if delivery.since is None else delivery.since),
        spread=spread,
        at_least_ms=answer.wait_ms,
    )
    if wait is None:
        seconds = delivery_ms / 1000
        return replace(tried, state="failed", detail=f"{detail} Given up after {seconds:g} s, attempts: {attempts}.")
    return replace(tried, detail=detail, next_at=now + wait)
