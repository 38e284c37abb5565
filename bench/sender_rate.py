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
from mainspring.delivery.signing import new_secret, sign

BODY = b'{"timerId":"reminder-12345","payload":{"order":"A-1001","kind":"reminder"}}'


async def measure(*, seconds: float = 3.0, concurrency: int = 64) -> float:
    """Requests per second over `concurrency` sends at a time."""
    async with sink() as port, Sender(guard=Guard(allow_loopback=True)) as sender:
        url = f"http://127.0.0.1:{port}/callback"
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


if __name__ == "__main__":
    arguments = [float(argument) for argument in sys.argv[1:]]
    rate = uvloop.run(
        measure(seconds=arguments[0] if arguments else 3.0, concurrency=int(arguments[1]) if len(arguments) > 1 else 64)
    )
    print(f"{rate:,.0f} signed POSTs per second")
