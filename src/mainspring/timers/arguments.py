"""What a program says about a timer, as the request that the API would get, with the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from mainspring.errors import InvalidInput
from mainspring.model import Delivery, RetryPolicy
from mainspring.timers.handlers import HANDLER_SCHEME
from mainspring.timers.messages import CreateTimer, UpdateTimer
from mainspring.wire.arguments import given, json_of, request

NAMES: Final = {
    "execute_at": "at",
    "delay_seconds": "in_seconds",
    "callback_timeout_seconds": "timeout_seconds",
}
"""What programs call the fields of a message."""


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
    handler, url = fields.get("handler"), fields.get("url")
    if (handler is None) == (url is None):
        raise InvalidInput("Expected exactly one of handler and url")
    moment = _moment(fields.get("at"), fields.get("in_seconds"))
    if not moment:
        raise InvalidInput("Expected one of at and in_seconds, got neither")
    said = {
        "namespace": namespace,
        "timer_id": timer_id,
        **moment,
        "callback_url": f"{HANDLER_SCHEME}{handler}"
        if isinstance(handler, str)
        else url
        if handler is None
        else handler,
        "payload": json_of(fields.get("payload"), "a payload"),
        "headers": given(fields.get("headers")),
        "labels": given(fields.get("labels")),
        "retry_policy": fields.get("retry_policy"),
        "callback_timeout_seconds": fields.get("timeout_seconds", UNSET),
        "delivery": fields.get("delivery", UNSET),
    }
    return request(CreateTimer, said, {"callback_url": "url" if handler is None else "handler", **NAMES})


def reschedule_request(
    namespace: str,
    timer_id: str,
    *,
    at: datetime | None = None,
    in_seconds: float | None = None,
    payload: Any | UnsetType = UNSET,
) -> UpdateTimer:
    moment = _moment(at, in_seconds)
    if not moment and payload is UNSET:
        raise InvalidInput("Expected one of at, in_seconds and payload, got none")
    raw = UNSET if payload is UNSET else json_of(payload, "a payload")
    said = {"namespace": namespace, "timer_id": timer_id, "payload": raw, **moment}
    return request(UpdateTimer, said, NAMES)


def _moment(at: datetime | None, in_seconds: float | None) -> dict[str, object]:
    if at is not None and in_seconds is not None:
        raise InvalidInput("Expected only one of at and in_seconds, got both")
    said = {"execute_at": at, "delay_seconds": in_seconds}
    return {name: value for name, value in said.items() if value is not None}
