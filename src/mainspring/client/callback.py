"""The receiving end of a timer: check who is calling, read the message, and answer.

    callback = read_callback(request.headers, request.body, secrets=[secret])
    ...
    return 200, callback_answer(next_execute_at=tomorrow)

`delivery_id` is the same for every repeat of a delivery: work already done for it need not be done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from mainspring.client.arguments import to_payload
from mainspring.clock import wall_ms
from mainspring.delivery.signatures import verify
from mainspring.errors import InvalidInput
from mainspring.wire.arguments import given, request
from mainspring.wire.message import Message, View


class Callback(View, frozen=True, kw_only=True):
    """What a timer delivers."""

    namespace: str
    timer_id: str
    execute_at: datetime
    attempt: int
    generation: int
    payload_json: Raw = field(name="payload")
    created_at: datetime
    delivery_id: str = ""
    """From the header `webhook-id`, which is also the `Idempotency-Key`."""

    @property
    def payload(self) -> Any:
        """The payload as a Python value."""
        return msgspec.json.decode(self.payload_json)


class CallbackAnswer(Message, frozen=True, kw_only=True):
    """What a receiver answers: done or not, when to call again, and with which payload."""

    ok: bool
    next_execute_at: datetime | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET


def read_callback(headers: Mapping[str, str], body: bytes, *, secrets: Sequence[str]) -> Callback:
    """The callback, if one of the namespace's secrets signed it within five minutes; else InvalidInput."""
    verify(secrets, headers, body, now=wall_ms() // 1000)
    try:
        callback = msgspec.json.decode(body, type=Callback)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("Expected the body of a callback, got something else") from error
    delivery_id = next(value for name, value in headers.items() if name.lower() == "webhook-id")
    return msgspec.structs.replace(callback, delivery_id=delivery_id)


def callback_answer(*, ok: bool = True, next_execute_at: datetime | None = None, payload: object = UNSET) -> bytes:
    """The body to answer with. `ok=False` asks for a retry; `next_execute_at` reschedules the timer."""
    said = {
        "ok": ok,
        "next_execute_at": given(next_execute_at),
        "payload": UNSET if payload is UNSET else to_payload(payload),
    }
    return msgspec.json.encode(request(CallbackAnswer, said))
