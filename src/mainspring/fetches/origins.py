"""Brings results to their origins: POSTed, signed, again and again until acknowledged, gone, or past the deadline.

All offers of one result carry the same `webhook-id`, the reqId, by which an origin knows a repeat.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec
from msgspec.structs import replace

import mainspring
from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.signing import sign
from mainspring.fetches.calling import Sends
from mainspring.fetches.inside import InsideSender, is_inside
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import Fetch, Return
from mainspring.fetches.views import result_of
from mainspring.kernel.backoff import wait_ms
from mainspring.model import RetryPolicy
from mainspring.timers.decision import retry_after_ms
from mainspring.timers.namespaces import DEFAULT, NamespaceService

OFFER_TIMEOUT_MS: Final = 30_000
_ENDLESS: Final = 1_000_000


class Origins:
    def __init__(
        self,
        *,
        sender: Sends,
        ledger: Ledger,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._sender = sender
        self._ledger = ledger
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness

    async def offer(self, fetch: Fetch, outcome: Outcome, *, timeout_ms: int = OFFER_TIMEOUT_MS) -> Fetch | None:
        """Offer the result once and record how that ended; the fetch as it then stands."""
        if is_inside(fetch.result_url or "") and not isinstance(self._sender, InsideSender):
            return fetch  # an executor of its own has no programs in it: the owner of the row offers it
        secrets = (await self._namespaces.find(DEFAULT)).secrets
        now = self._clock.now_ms()
        reply = await self._sender.send(offering(fetch, outcome, secrets, now=now, timeout_ms=timeout_ms))
        crashpoint.reach(crashpoint.FETCH_DELIVERED)
        spread = self._random.random()
        ended_at = self._clock.now_ms()

        def offered(delivery: Return) -> Return:
            return judged(delivery, reply, outcome, delivery_ms=fetch.delivery_ms, now=ended_at, spread=spread)

        after = await self._ledger.offered(fetch.req_id, offered)
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
    attempts = delivery.attempts + 1
    tried = replace(delivery, attempts=attempts, last_status=reply.status)
    if reply.status is not None and 200 <= reply.status < 300:
        return replace(tried, state="delivered", detail="", delivered_at=now)
    detail = reply.detail or f"The origin answered {reply.status}."
    if reply.status == 410:
        return replace(tried, state="failed", detail=f"{detail} It wants no more.")
    policy = RetryPolicy(max_attempts=_ENDLESS, max_elapsed_seconds=delivery_ms / 1000)
    wait = wait_ms(
        policy,
        attempts=attempts,
        elapsed_ms=now - outcome.finished_at,
        spread=spread,
        at_least_ms=retry_after_ms(reply.headers.get("retry-after", ""), now),
    )
    if wait is None:
        seconds = delivery_ms / 1000
        return replace(tried, state="failed", detail=f"{detail} It was offered for {seconds:g} s, {attempts} times.")
    return replace(tried, detail=detail, next_at=now + wait)
