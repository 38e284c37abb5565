"""The receiving end: signatures are checked, what is said is read, answers are written."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
import pytest

from mainspring.client import callback_answer, read_callback
from mainspring.delivery.signatures import new_secret, sign
from mainspring.errors import InvalidInput

SECRET = new_secret(bytes(range(32)))
BODY = msgspec.json.encode(
    {
        "namespace": "default",
        "timerId": "t",
        "executeAt": "2026-01-01T00:00:00Z",
        "attempt": 2,
        "generation": 1,
        "payload": {"n": 1},
        "createdAt": "2026-01-01T00:00:00Z",
        "addedLater": True,
    }
)


def signed(body: bytes, *, secret: str = SECRET, age: int = 0) -> dict[str, str]:
    now = int(time.time()) - age
    signature = sign([secret], message_id="msg_1", timestamp=now, body=body)
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(now), "Webhook-Signature": signature}


def test_a_signed_callback_is_read() -> None:
    callback = read_callback(signed(BODY), BODY, secrets=[new_secret(b"x" * 24), SECRET])
    assert (callback.timer_id, callback.attempt, callback.delivery_id) == ("t", 2, "msg_1")
    assert callback.payload == {"n": 1}


def test_what_is_not_signed_so_is_refused() -> None:
    for headers, body in [
        (signed(BODY), BODY + b" "),
        (signed(BODY, secret=new_secret(b"y" * 24)), BODY),
        (signed(BODY, age=3600), BODY),
        ({}, BODY),
        (signed(b"[]"), b"[]"),
    ]:
        with pytest.raises(InvalidInput):
            read_callback(headers, body, secrets=[SECRET])


def test_answers_say_only_what_was_given() -> None:
    assert callback_answer() == b'{"ok":true}'
    again = callback_answer(ok=False, next_execute_at=datetime(2030, 1, 1, tzinfo=UTC), payload=None)
    assert again == b'{"ok":false,"nextExecuteAt":"2030-01-01T00:00:00Z","payload":null}'
