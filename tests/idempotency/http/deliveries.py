"""Signed deliveries as a sender makes them."""

from __future__ import annotations

import os
import time

from mainspring.delivery.signatures import new_secret, sign

SECRET = new_secret(os.urandom(32))
BODY = b'{"timerId":"t1","attempt":1,"payload":{"order":42}}'


def signed(delivery_id: str = "msg_1", body: bytes = BODY, *, secret: str = SECRET, age: int = 0) -> dict[str, str]:
    timestamp = int(time.time()) - age
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign([secret], message_id=delivery_id, timestamp=timestamp, body=body),
        "content-type": "application/json",
    }
