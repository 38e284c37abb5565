"""How many small signed POSTs one process sends per second to a sink in another process.

python -m bench.sender_rate [seconds] [concurrency]
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from bench.sink import sink
from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.delivery.signatures import new_secret, sign

BODY = b'{"timerId":"reminder-12345","payload":{"order":"A-1001","kind":"reminder"}}'


async def measure(url: str, *, seconds: float = 3.0, concurrency: int = 64) -> float:
    """Requests per second to `url`, over `concurrency` sends at a time."""
    async with Sender(guard=Guard(allow_loopback=True)) as sender:
        secrets = (new_secret(b"k" * 32),)
        stop_at = time.monotonic() + seconds
        counts = [0] * concurrency

        async def send_on(lane: int) -> None:
            while time.monotonic() < stop_at:
                delivery_id = f"msg_{lane}_{counts[lane]}"
                moment = int(time.time())
                headers = (
                    ("content-type", "application/json"),
                    ("webhook-id", delivery_id),
                    ("webhook-timestamp", str(moment)),
                    ("webhook-signature", sign(secrets, message_id=delivery_id, timestamp=moment, body=BODY)),
                    ("idempotency-key", delivery_id),
                )
                reply = await sender.send(Call("POST", url, headers, BODY, 30_000))
                assert reply.status == 200, reply
                counts[lane] += 1

        started = time.monotonic()
        await asyncio.gather(*(send_on(lane) for lane in range(concurrency)))
        return sum(counts) / (time.monotonic() - started)


async def _main(seconds: float = 3.0, concurrency: float = 64) -> None:
    async with sink() as target:
        rate = await measure(target.url, seconds=seconds, concurrency=int(concurrency))
    print(f"{rate:,.0f} signed POSTs per second")


if __name__ == "__main__":
    uvloop.run(_main(*(float(argument) for argument in sys.argv[1:])))
