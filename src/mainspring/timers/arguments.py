"""What a program says about timers, as the request that the API would get, with the same checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from mainspring.errors import InvalidInput
from mainspring.keywords import refuse_unknown
from mainspring.model import Delivery, Result, RetryPolicy, State
from mainspring.timers.handlers import HANDLER_SCHEME
from mainspring.timers.messages import CreateTimer, CreateTimers, TimerRef, UpdateTimer
from mainspring.wire.arguments import given, json_of, request

OF_HANDLER: Final = {"callback_url": "handler"}
"""What a program calls the target of a timer that is a function."""


class Where(TypedDict, total=False):
    """Which timers of a namespace; all conditions must hold; without any, everything matches."""

    namespace: str
    states: Sequence[State]
    id_prefix: str
    labels: Mapping[str, str]
    due_from: datetime
    """Next due at or after this instant."""
    due_to: datetime
    """Next due before this instant."""


class HistoryWhere(TypedDict, total=False):
    """Which attempts; all conditions must hold; without any, everything matches."""

    outcomes: Sequence[Result]
    since: datetime
    """Started at or after this instant."""
    until: datetime
    """Started before this instant."""


class TimerFields(TypedDict, total=False):
    """When, where and what: one of `execute_at` and `delay_seconds`, one of `handler` and `callback_url`, the rest as
    needed."""

    execute_at: datetime | None
    delay_seconds: float | None
    handler: str | None
    callback_url: str | None
    payload: object
    headers: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    retry_policy: RetryPolicy | None
    callback_timeout_seconds: float
    delivery: Delivery


class TimerChanges(TypedDict, total=False):
    """What becomes different; the rest stays."""

    execute_at: datetime
    delay_seconds: float
    handler: str
    callback_url: str
    payload: object
    headers: Mapping[str, str]
    labels: Mapping[str, str]
    retry_policy: RetryPolicy | None
    callback_timeout_seconds: float
    delivery: Delivery


def create_request(timer_id: str, *, namespace: str, **fields: Unpack[TimerFields]) -> CreateTimer:
    refuse_unknown(fields, TimerFields.__optional_keys__)
    handler = fields.get("handler")
    if (handler is None) == (fields.get("callback_url") is None):
        raise InvalidInput("Expected exactly one of handler and callback_url")
    at, delay = fields.get("execute_at"), fields.get("delay_seconds")
    if (at is None) == (delay is None):
        raise InvalidInput(
            f"Expected exactly one of execute_at and delay_seconds, got {'neither' if at is None else 'both'}"
        )
    payload = fields.get("payload")
    said = {
        "namespace": namespace,
        "timer_id": timer_id,
        "execute_at": given(at),
        "delay_seconds": given(delay),
        "callback_url": _target(handler, fields.get("callback_url")),
        "payload": UNSET if payload is None else json_of(payload, "a payload"),
        "headers": given(fields.get("headers")),
        "labels": given(fields.get("labels")),
        "retry_policy": fields.get("retry_policy"),
        "callback_timeout_seconds": fields.get("callback_timeout_seconds", UNSET),
        "delivery": fields.get("delivery", UNSET),
    }
    return request(CreateTimer, said, {} if handler is None else OF_HANDLER)


def update_request(
    timer_id: str, *, namespace: str, if_generation: int | UnsetType = UNSET, **changes: Unpack[TimerChanges]
) -> UpdateTimer:
    refuse_unknown(changes, TimerChanges.__optional_keys__)
    said: dict[str, object] = {**changes}
    handler = said.pop("handler", UNSET)
    if handler is not UNSET:
        if "callback_url" in said:
            raise InvalidInput("Expected only one of handler and callback_url, got both")
        said["callback_url"] = _target(handler, None)
    if said.keys() >= {"execute_at", "delay_seconds"}:
        raise InvalidInput("Expected only one of execute_at and delay_seconds, got both")
    if "payload" in said:
        said["payload"] = json_of(said["payload"], "a payload")
    identity = {"namespace": namespace, "timer_id": timer_id, "if_generation": if_generation}
    return request(UpdateTimer, {**said, **identity}, {} if handler is UNSET else OF_HANDLER)


def batch_request(timers: Iterable[CreateTimer], *, dry_run: bool) -> CreateTimers:
    given_timers = tuple(timers) if isinstance(timers, Iterable) else (timers,)
    for timer in given_timers:
        if not isinstance(timer, CreateTimer):
            raise InvalidInput(f"timers: Expected CreateTimer messages, got {timer!r:.100}")
    said = {"timers": tuple(json_of(timer, "a timer") for timer in given_timers), "dry_run": dry_run}
    return request(CreateTimers, said)


def ref_request(timer_id: str, *, namespace: str) -> TimerRef:
    return request(TimerRef, {"namespace": namespace, "timer_id": timer_id})


def _target(handler: object, callback_url: object) -> object:
    if handler is None:
        return callback_url
    return f"{HANDLER_SCHEME}{handler}" if isinstance(handler, str) else handler
