"""Carries timers: to a URL over HTTP, signed, or to a handler inside this program.

The request of an attempt is a pure function of the row, so a repeat differs only in what must differ:
attempt, timestamp and signature. `webhook-id` and `Idempotency-Key` stay the same for all repeats of a delivery.
A URL that answered 410 is gone: its other timers are parked unsent, until one of them is resumed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Call, Reply, Sends
from mainspring.delivery.guard import Guard
from mainspring.delivery.webhook import correlation_in, new_delivery_id, new_span_id, signed_headers
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.failure_lines import FailureLines
from mainspring.kernel.backoff import max_attempts
from mainspring.kernel.carrier import Ending, Lane, put_aside
from mainspring.kernel.ownership import Ownership
from mainspring.model import Delivery, Namespace, Result, RetryPolicy, Timer, TimerKey
from mainspring.namespaces.cache import reread
from mainspring.namespaces.service import NamespaceService
from mainspring.store import RecordStore, Remove, TimerStore, Verdict, all_records
from mainspring.timers.decision import Reschedules, decide, lost, put_off, read_wishes
from mainspring.timers.destinations import Destinations
from mainspring.timers.handlers import HANDLER_SCHEME, call_handler
from mainspring.unreadable import read_record
from mainspring.wire.instants import to_instant

T = TypeVar("T")
Handler = Callable[[Timer], Awaitable[object]]
GONE_URLS = "destination"
GONE_LIMIT = 10_000
GONE_MS = 7 * 86_400_000
LOOKS = 20
LOOK_SECONDS = 0.25


class CallbackBody(Struct, rename="camel", kw_only=True):
    """What a receiver gets."""

    namespace: str
    timer_id: str
    execute_at: datetime
    attempt: int
    generation: int
    payload: Raw
    created_at: datetime


def callback(timer: Timer, namespace: Namespace, policy: RetryPolicy, *, now: int, span_id: str) -> Call:
    """The request of one attempt."""
    detail = timer.detail
    body = msgspec.json.encode(
        CallbackBody(
            namespace=timer.namespace,
            timer_id=timer.timer_id,
            execute_at=to_instant(detail.execute_at),
            attempt=timer.attempts,
            generation=timer.generation,
            payload=Raw(b"null") if timer.payload is None else Raw(timer.payload),
            created_at=to_instant(detail.created_at),
        )
    )
    headers = (
        ("content-type", "application/json"),
        *signed_headers(namespace.secrets, delivery_id=detail.delivery_id, body=body, attempt=timer.attempts, now=now),
        ("mainspring-max-attempts", str(max_attempts(policy))),
        ("mainspring-scheduled-at", str(detail.execute_at)),
        ("mainspring-fence", str(timer.fence)),
        ("traceparent", f"00-{detail.delivery_id[-32:]}-{span_id}-01"),
        *detail.headers.items(),
    )
    return Call(
        method="POST",
        url=detail.callback_url,
        headers=headers,
        body=body,
        timeout_ms=detail.callback_timeout_ms,
        fresh=detail.delivery is Delivery.AT_MOST_ONCE,
    )


class TimerCarrier:
    """The engine's `Carrier` for timers."""

    def __init__(
        self,
        *,
        sender: Sends,
        guard: Guard,
        namespaces: NamespaceService,
        records: RecordStore,
        timers: TimerStore,
        clock: Clock,
        randomness: random.Random,
        ownership: Ownership,
        host_limit: int,
        max_payload: int,
        reschedules: Reschedules,
        failures: FailureLines,
    ) -> None:
        self._sender = sender
        self._failures = failures
        self._guard = guard
        self._namespaces = namespaces
        self._records = records
        self._timers = timers
        self._clock = clock
        self._random = randomness
        self._ownership = ownership
        self._host_limit = host_limit
        self._max_payload = max_payload
        self._reschedules = reschedules
        self.destinations = Destinations(guard)
        self._gone: dict[str, int] = {}
        """URLs, and until when they count as gone."""
        self.handlers: dict[str, Handler] = {}
        self.is_at_rest = False
        """Nothing is carried here: handlers belong to other programs, whatever they are called."""

    # --- the Carrier protocol -------------------------------------------------------------------------

    def lane(self, timer: Timer) -> Lane:
        namespace = self._namespaces.cached(timer.namespace)
        limit = (namespace and namespace.host_limit) or self._host_limit
        return self.destinations.lane(timer.namespace, timer.detail.callback_url, limit)

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        """Whether a URL is gone is looked up on record, by `carry`: what is known here may be out of date."""
        return None

    async def carry(self, timer: Timer) -> Ending:
        try:
            known = self._namespaces.fresh(timer.namespace) or await self._current(timer)
        except StoreUnavailable as error:  # it may have got more shards since, and this timer a successor there
            reason = f"It cannot be read what shards the namespace has: {error.detail}"
            return put_off(self._clock.now_ms(), at=self._clock.now_ms() + round(LOOK_SECONDS * 1000), reason=reason)
        if known is not None and known.earlier and (ending := await self._replaced(timer, known)):
            return ending
        started_at = self._clock.now_ms()
        if await self._is_gone(timer.detail.callback_url):
            reason = "The URL has answered 410 Gone; resume a timer of this URL to try it again."
            return put_aside(timer, started_at, reason)
        if timer.attempts == 1:
            telemetry.lateness.observe(max(0, started_at - timer.due_at))
        policy = self._policy(timer)
        is_handler = timer.detail.callback_url.startswith(HANDLER_SCHEME)
        namespace = None if is_handler else await self._namespaces.find(timer.namespace)
        if not await self._ownership.keeps(timer):
            return put_off(
                started_at, at=started_at, reason="Another instance has taken over"
            )  # and this is not written
        if namespace is None:
            reply = await self._call_handler(timer)
        else:
            span_id = new_span_id(self._random)
            reply = await self._sender.send(callback(timer, namespace, policy, now=started_at, span_id=span_id))
        if reply.problem != "exhausted":
            telemetry.call_duration.observe(reply.duration_ms)
        if reply.status == 410:
            await self._note_gone(timer.detail.callback_url)
        return decide(
            timer,
            policy,
            reply,
            read_wishes(reply, max_payload=self._max_payload),
            started_at=started_at,
            spread=self._random.random(),
            delivery_id=new_delivery_id(self._random),
            reschedules=self._reschedules,
        )

    async def _replaced(self, timer: Timer, namespace: Namespace) -> Ending | None:
        """An ending for a timer if there is one with its id in a newer range: both were created at the same time, and
        that one counts. One in an older range is removed. See `namespaces.reshard`.

        Both may be about to be called. The newer one is called when the older one is removed, and no sooner; and the
        older one if there is no newer one, and it is then still there."""
        newer, older = namespace.doubles_of(timer)
        if not newer and not older:
            return None
        now = self._clock.now_ms()
        found = await self._doubles([*newer, *older], timer)
        is_replaced = any(row is not None for row in found[: len(newer)])
        if not is_replaced and not await self._are_removed([row for row in found if row is not None]):
            reason = "A timer of the same id in older shards may be about to be called"
            return put_off(now, at=now + round(LOOK_SECONDS * 1000), reason=reason)
        if not is_replaced and newer:
            is_replaced = None in await self._doubles([timer.key], timer)
        if not is_replaced:
            return None
        reason = "The timer was created again in newer shards."
        return Ending(
            outcome=Result.FAILED, next="dropped", detail=reason, started_at=now, reachable=None, is_attempt=False
        )

    async def _are_removed(self, rows: Sequence[Timer]) -> bool:
        """False if one of them has changed, or may have: then the one who works on it finds the newer one."""
        try:
            verdicts = await self._timers.write([Remove(row.key, row.version) for row in rows]) if rows else ()
        except StoreUnavailable:
            return False
        return all(verdict is Verdict.APPLIED for verdict in verdicts)

    async def _doubles(self, keys: Sequence[TimerKey], timer: Timer) -> Sequence[Timer | None]:
        """None at all if the store cannot be asked: there hardly ever is another."""
        with suppress(StoreUnavailable):
            return await self._patiently(lambda: self._timers.get(keys), timer)
        return []

    async def _current(self, timer: Timer) -> Namespace | None:
        """The namespace as the store has it; None if that cannot be said because it is gone or damaged."""
        with suppress(NotFound, Conflict):
            return (await self._patiently(lambda: self._namespaces.load(timer.namespace), timer))[0]
        return None

    async def _patiently(self, ask: Callable[[], Awaitable[T]], timer: Timer) -> T:
        """Waits for a store that cannot be asked, but not for ever: a timer that is about to be called has a place that
        others wait for."""
        for _ in range(LOOKS - 1):
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(LOOK_SECONDS)
                if not await self._ownership.keeps(timer):
                    raise
        return await ask()

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        return lost(timer, self._policy(timer), now=now, reason=reason)

    def tell_failure(self, timer: Timer, ending: Ending) -> None:
        detail = timer.detail
        self._failures.tell(
            _said_of(ending),
            namespace=timer.namespace,
            timer_id=timer.timer_id,
            delivery_id=detail.delivery_id,
            correlation_id=correlation_in(detail.headers),
            attempt=timer.attempts,
            outcome=ending.outcome,
            status=ending.status,
            next=ending.next,
            next_at=None if ending.next_at is None else to_instant(ending.next_at).isoformat(),
            duration_ms=ending.duration_ms,
            destination=self.destinations.name(detail.callback_url),
            reason=ending.detail,
        )

    def _policy(self, timer: Timer) -> RetryPolicy:
        if timer.detail.retry_policy is not None:
            return timer.detail.retry_policy
        namespace = self._namespaces.cached(timer.namespace)
        return namespace.retry_policy if namespace is not None else RetryPolicy()

    def check_target(self, target: str) -> None:
        """What a timer of this program may name: a registered handler, or a URL."""
        if not target.startswith(HANDLER_SCHEME):
            self._guard.check_url(target)
        elif target.removeprefix(HANDLER_SCHEME) not in self.handlers and not self.is_at_rest:
            known = ", ".join(sorted(self.handlers)) or "none"
            raise InvalidInput(f"Expected a registered handler ({known}), got {target!r}")

    async def _call_handler(self, timer: Timer) -> Reply:
        name = timer.detail.callback_url.removeprefix(HANDLER_SCHEME)
        handler = self.handlers.get(name)
        call = None if handler is None else partial(handler, timer)
        return await call_handler(name, call, timeout_ms=timer.detail.callback_timeout_ms, clock=self._clock)

    # --- URLs that are gone -----------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Learn which URLs are gone, as this instance and the others have recorded it."""
        before = dict(self._gone)
        found: dict[str, int] = {}
        async for record in all_records(self._records, GONE_URLS, self._clock.now_ms):
            if (url := read_record(GONE_URLS, record, bytes.decode)) is not None:
                found[url] = record.expires_at or 0
            if len(found) >= GONE_LIMIT:
                break
        self._gone = reread(found, before=before, known=self._gone)

    async def _is_gone(self, url: str) -> bool:
        """Whether it is on record as gone. Only what is believed to be gone is looked up, because one of its timers may
        have been resumed elsewhere since. If the store cannot say, one call too many does less harm than none."""
        now = self._clock.now_ms()
        if self._gone.get(url, 0) <= now:
            return False
        try:
            is_gone = await self._records.get_record(GONE_URLS, _key(url), now=now) is not None
        except StoreUnavailable:
            return False
        if not is_gone:
            self._gone.pop(url, None)
        return is_gone

    async def revive(self, url: str) -> None:
        """Somebody wants a timer of this URL to be called: it may be tried again, by every instance."""
        key = _key(url)
        now = self._clock.now_ms()
        record = await self._records.get_record(GONE_URLS, key, now=now)
        if record is not None:
            await self._records.delete_record(GONE_URLS, key, expect=record.version, now=now)
        self._gone.pop(url, None)

    async def _note_gone(self, url: str) -> None:
        """Kept for a week and for a limited number of URLs: beyond that, each timer finds out by itself."""
        if url in self._gone or len(self._gone) >= GONE_LIMIT:
            return
        now = self._clock.now_ms()
        self._gone[url] = expires_at = now + GONE_MS
        key = _key(url)
        try:
            await self._records.put_record(GONE_URLS, key, url.encode(), expect=0, now=now, expires_at=expires_at)
        except StoreUnavailable as error:
            telemetry.warning("it was not recorded that a URL is gone", reason=error.detail)


def _said_of(ending: Ending) -> str:
    if not ending.is_attempt:
        return "a timer was put aside" if ending.next in ("parked", "dropped") else "a call was put off"
    if ending.next in ("parked", "dropped"):
        return f"a timer was {ending.next} after its last attempt"
    return "an attempt failed" if ending.outcome is Result.FAILED else "the outcome of an attempt is unknown"


def _key(url: str) -> str:
    return sha256(url.encode()).hexdigest()
