"""What a program says about a timer, as the request that the API would get, with the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack

from msgspec import UNSET, Raw, UnsetType

from mainspring.errors import InvalidInput
from mainspring.model import Delivery, RetryPolicy
from mainspring.timers.handlers import HANDLER_SCHEME
from mainspring.timers.messages import CreateTimer, UpdateTimer
from mainspring.wire.strict_json import decode, encode

M = TypeVar("M", CreateTimer, UpdateTimer)


class TimerFields(TypedDict, total=False):
    """When, where and what: one of `at` and `in_seconds`, one of `handler` and `url`, the rest as needed."""

    at: datetime | None
    in_seconds: float | None
    handler: str | None
    url: str | None
    payload: Any
    headers: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    retry_policy: RetryPolicy | None
    timeout_seconds: float
    delivery: Delivery


def create_request(namespace: str, timer_id: str, **fields: Unpack[TimerFields]) -> CreateTimer:
    at, in_seconds = fields.get("at"), fields.get("in_seconds")
    if at is None and in_seconds is None:
        raise InvalidInput("Expected one of at and in_seconds, got neither")
    instant, delay = moment(at, in_seconds)
    return checked(
        CreateTimer(
            namespace=namespace,
            timer_id=timer_id,
            execute_at=instant,
            delay_seconds=delay,
            callback_url=_target(fields.get("handler"), fields.get("url")),
            payload=payload_of(fields.get("payload")),
            headers=dict(fields.get("headers") or {}),
            labels=dict(fields.get("labels") or {}),
            retry_policy=fields.get("retry_policy"),
            callback_timeout_seconds=float(fields.get("timeout_seconds", 30.0)),
            delivery=fields.get("delivery", Delivery.AT_LEAST_ONCE),
        )
    )


def moment(at: datetime | None, in_seconds: float | None) -> tuple[datetime | UnsetType, float | UnsetType]:
    """`executeAt` and `delaySeconds` as a request has them."""
    if at is not None and in_seconds is not None:
        raise InvalidInput("Expected only one of at and in_seconds, got both")
    if at is not None and at.utcoffset() is None:
        raise InvalidInput(f"Expected at with a time zone, got {at.isoformat()}")
    return UNSET if at is None else at, UNSET if in_seconds is None else float(in_seconds)


def payload_of(value: object) -> Raw:
    return Raw(encode(value, "a payload"))


def checked(request: M) -> M:
    """Raise what the API's decoder would say about this request."""
    return decode(encode(request, "fields"), type(request))


def _target(handler: str | None, url: str | None) -> str:
    if (handler is None) == (url is None):
        raise InvalidInput("Expected exactly one of handler and url")
    return url if url is not None else f"{HANDLER_SCHEME}{handler}"
