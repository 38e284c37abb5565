"""The secret by which instances of a cluster recognise each other: made by the first, and the same for all since."""

from __future__ import annotations

import base64
import random
import re
from typing import Final

from mainspring.clock import Clock
from mainspring.store import RecordStore
from mainspring.unreadable import read_record

CLUSTER: Final = "cluster"
"""The collection of what all instances share."""
_KEY: Final = "secret"
_BYTES: Final = 32
_SECRET: Final = re.compile(rb"[A-Za-z0-9_-]{43}")


async def read_cluster_secret(records: RecordStore, clock: Clock, randomness: random.Random) -> str:
    """One that cannot be read is replaced. Instances that know the old one wake nobody until they restart; others look
    by themselves."""
    while True:
        now = clock.now_ms()
        record = await records.get_record(CLUSTER, _KEY, now=now)
        if record is None:
            secret = base64.urlsafe_b64encode(randomness.randbytes(_BYTES)).rstrip(b"=")
            await records.put_record(CLUSTER, _KEY, secret, expect=0, now=now)
        elif (found := read_record(CLUSTER, record, decode)) is not None:
            return found
        else:
            await records.delete_record(CLUSTER, _KEY, expect=record.version, now=now)


def decode(value: bytes) -> str:
    """Only what was made here is a secret: with an empty one everybody would be let in."""
    if not _SECRET.fullmatch(value):
        raise ValueError(
            f"Expected a secret of {_BYTES} random bytes in base64, got {len(value)} bytes of something else"
        )
    return value.decode()
