"""What an answer means: from a `Reply` to an `Ending`, as a pure function.

| answer                                     | outcome    | at-least-once                 | at-most-once            |
|--------------------------------------------|------------|-------------------------------|-------------------------|
| 2xx                                        | succeeded  | done                          | done                    |
| 2xx, JSON object with `nextExecuteAt`      | by `ok`    | rescheduled, not too soon     | the same                |
| 2xx, JSON object with `ok: false`          | failed     | retried                       | ends                    |
| 408, 425, 429, 5xx                         | failed     | retried, Retry-After obeyed   | ends                    |
| other 4xx, 3xx, 1xx                        | failed     | ends                          | ends                    |
| nothing was sent (refused, no such host)   | failed     | retried                       | retried: it never left  |
| address forbidden                          | failed     | ends                          | ends                    |
| no descriptor left here                    |            | put off, not an attempt       | put off                 |
| sent, then silence, reset or nonsense      | unknown    | retried                       | ends, as unknown        |

"Ends" means parked, or dropped if the policy says so. `retryOn` replaces the middle rows' choice of what is retried.
A body that is too long to be read whole is not examined.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mainspring.delivery.call import Reply
from mainspring.delivery.webhook import retry_after_ms
from mainspring.errors import InvalidInput
from mainspring.kernel.backoff import wait_ms
from mainspring.kernel.carrier import Ending
from mainspring.model import Delivery, Result, RetryPolicy, Timer
from mainspring.wire.instants import LAST_INSTANT, Instant, to_ms
from mainspring.wire.strict_json import check_value

ANSWER_HEAD = 500
"""How much of an answer the history keeps, in characters."""

PUT_OFF_MS = 1_000
"""How long a call waits if it could not be made for a reason on our side."""

DEFAULT_RETRY_ON = frozenset({"408", "425", "429", "5xx", "network", "timeout"})


class Reschedules(NamedTuple):
    """What receivers may ask for: how far apart calls must be, and how often in a row the moment may be in the past.

    Without these, an answer that always says the same makes an endless loop as fast as the wire.
    """

    apart_ms: int = 1000
    hasty_limit: int = 1000


DEFAULT_RESCHEDULES = Reschedules()


class AnswerBody(Struct, rename="camel"):
    """What a receiver may say in a JSON object. Other fields are its own business."""

    ok: bool = True
    next_execute_at: Instant | UnsetType | None = UNSET
    payload: Raw | UnsetType = UNSET


_decode_answer = msgspec.json.Decoder(AnswerBody).decode


class Wishes(NamedTuple):
    """What else a receiver that answered 2xx says."""

    is_ok: bool = True
    next_at: int | None = None
    payload: str | UnsetType | None = UNSET
    objection: str = ""
    """Why these wishes cannot be granted."""


NO_WISHES = Wishes()


def decide(
    timer: Timer,
    policy: RetryPolicy,
    reply: Reply,
    wishes: Wishes = NO_WISHES,
    *,
    started_at: int,
    spread: float,
    delivery_id: str = "",
    reschedules: Reschedules = DEFAULT_RESCHEDULES,
) -> Ending:
    """`timer` is the row as it was begun; `spread` and `delivery_id` are the random parts, in case they are needed."""
    ended_at = started_at + reply.duration_ms
    base: dict[str, Any] = {
        "started_at": started_at,
        "duration_ms": reply.duration_ms,
        "status": reply.status,
        "answer_head": reply.body[: ANSWER_HEAD * 4].decode("utf-8", "replace")[:ANSWER_HEAD],
        "reachable": reply.status is not None or reply.problem == "refused",
    }
    if reply.problem == "exhausted":
        return put_off(started_at, at=ended_at + PUT_OFF_MS, reason=reply.detail, duration_ms=reply.duration_ms)
    if reply.status is None:
        outcome = Result.UNKNOWN if reply.sent else Result.FAILED
        retried = reply.problem != "refused" and _retries(
            policy, "timeout" if reply.problem == "timeout" else "network"
        )
        safe = timer.detail.delivery is Delivery.AT_LEAST_ONCE or not reply.sent
        return _again(
            timer,
            policy,
            outcome,
            base,
            retried=retried and safe,
            detail=reply.detail,
            ended_at=ended_at,
            spread=spread,
        )
    if 200 <= reply.status < 300:
        if wishes.next_at is not None:
            hasty = timer.detail.hasty + 1 if wishes.next_at <= started_at else 0
            if hasty >= reschedules.hasty_limit:
                detail = f"The receiver asked for a moment that had passed, {hasty} times in a row."
                return Ending(outcome=Result.FAILED, next="parked", detail=detail, **base)
            return Ending(
                outcome=Result.SUCCEEDED if wishes.is_ok else Result.FAILED,
                next="rescheduled",
                next_at=max(wishes.next_at, ended_at + reschedules.apart_ms),
                payload=wishes.payload,
                delivery_id=delivery_id,
                hasty=hasty,
                detail="" if wishes.is_ok else "The receiver answered ok: false and asked for another time.",
                **base,
            )
        detail = wishes.objection or ("" if wishes.is_ok else reply.detail or "The receiver answered ok: false.")
        if not detail:
            return Ending(outcome=Result.SUCCEEDED, next="done", **base)
        retried = policy.retry_on is None or _retries(policy, str(reply.status))
    else:
        detail = reply.detail or f"The receiver answered {reply.status}."
        retried = _retries(policy, str(reply.status))
    safe = timer.detail.delivery is Delivery.AT_LEAST_ONCE
    wait = retry_after_ms(reply.headers.get("retry-after", ""), ended_at)
    return _again(
        timer,
        policy,
        Result.FAILED,
        base,
        retried=retried and safe,
        detail=detail,
        ended_at=ended_at,
        spread=spread,
        at_least_ms=wait,
    )


def put_off(started_at: int, *, at: int, reason: str, **more: Any) -> Ending:
    """No call was made, through no fault of the destination: nothing is counted against it, nor as an attempt."""
    return Ending(
        outcome=Result.FAILED,
        next="retry",
        next_at=at,
        detail=f"{reason}. No call was made.",
        started_at=started_at,
        reachable=None,
        is_attempt=False,
        kept=False,
        **more,
    )


def lost(timer: Timer, policy: RetryPolicy, *, now: int, reason: str) -> Ending:
    """An attempt on which no report will come: unknown. Repeated at once if the owner chose that."""
    base: dict[str, Any] = {"started_at": now, "reachable": True}
    safe = timer.detail.delivery is Delivery.AT_LEAST_ONCE
    ending = _again(timer, policy, Result.UNKNOWN, base, retried=safe, detail=reason, ended_at=now)
    return msgspec.structs.replace(ending, next_at=now) if ending.next == "retry" else ending


def _again(
    timer: Timer,
    policy: RetryPolicy,
    outcome: Result,
    base: dict[str, Any],
    *,
    retried: bool,
    detail: str,
    ended_at: int,
    spread: float = 0.0,
    at_least_ms: int = 0,
) -> Ending:
    first = timer.detail.first_attempt_at if timer.detail.first_attempt_at is not None else base["started_at"]
    wait = None
    if retried:
        wait = wait_ms(
            policy, attempts=timer.attempts, elapsed_ms=ended_at - first, spread=spread, at_least_ms=at_least_ms
        )
    detail = detail if not detail or detail.endswith(".") else f"{detail}."
    if outcome is Result.UNKNOWN:
        detail = f"{detail} The receiver may have acted on it."
    if wait is not None:
        return Ending(outcome=outcome, next="retry", next_at=ended_at + wait, detail=detail, **base)
    if retried:
        detail = f"{detail} No attempt is left after {timer.attempts}."
    return Ending(
        outcome=outcome, next="parked" if policy.on_exhausted == "park" else "dropped", detail=detail.strip(), **base
    )


def _retries(policy: RetryPolicy, what: str) -> bool:
    rules = DEFAULT_RETRY_ON if policy.retry_on is None else policy.retry_on
    return what in rules or (what.isdigit() and f"{what[0]}xx" in rules)


def read_wishes(reply: Reply, *, max_payload: int) -> Wishes:
    """Only wishes are held to our rules: anything else in a receiver's answer is its own business."""
    text = reply.body.lstrip()
    if reply.truncated or not text.startswith(b"{"):
        return NO_WISHES
    try:
        answer = _decode_answer(text)
    except msgspec.ValidationError as error:
        return Wishes(objection=f"The answer's wishes were not understood: {error}.")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_WISHES
    if objection := _objection(answer, max_payload):
        return Wishes(objection=objection)
    return Wishes(
        is_ok=answer.ok,
        next_at=None if answer.next_execute_at in (UNSET, None) else to_ms(answer.next_execute_at),
        payload=UNSET if answer.payload is UNSET else _payload(answer.payload),
    )


def _objection(answer: AnswerBody, max_payload: int) -> str:
    """Why these wishes cannot be granted; nothing if they can."""
    if answer.next_execute_at not in (UNSET, None) and not 0 <= to_ms(answer.next_execute_at) <= LAST_INSTANT:
        return "The answer's nextExecuteAt is not between the years 1970 and 9999."
    if answer.payload is UNSET:
        return ""
    payload = bytes(answer.payload)
    if len(payload) > max_payload:
        return f"The answer's payload is over {max_payload} bytes."
    try:
        check_value(payload)
    except InvalidInput as error:
        return f"The answer's payload was not accepted: {error.detail}."
    return ""


def _payload(raw: Raw) -> str | None:
    data = bytes(raw)
    return None if data == b"null" else data.decode()
