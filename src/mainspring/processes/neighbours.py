"""What a worker knows of the others behind its port, and how it asks them for their metrics.

A scrape reaches any one of them, so each answers for all: every sample has the label `worker`, the slot of its
process. A worker that does not answer at once is missing from the answer, which says how many are in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from mainspring import telemetry
from mainspring.api.internal import METRICS_PATH
from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender

TIMEOUT_MS: Final = 1_000
ANSWER_BYTES: Final = 1_048_576
_SHOWN: Final = """\
# HELP mainspring_workers_shown Workers whose metrics are in this answer.
# TYPE mainspring_workers_shown gauge
mainspring_workers_shown {}
"""

JoinMetrics = Callable[[str], Awaitable[str]]


class Neighbours:
    """`ports` are the private ones of all workers that are ready, by their slots; the supervisor says which."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.ports: dict[int, int] = {}

    @asynccontextmanager
    async def asked(self, secret: str) -> AsyncIterator[JoinMetrics]:
        """`secret` is that of the cluster, by which they know each other."""
        guard = Guard(allow_loopback=True)
        async with Sender(guard=guard, answer_bytes=ANSWER_BYTES) as sender:

            async def ask(port: int) -> str:
                headers = (("authorization", f"Bearer {secret}"),)
                url = f"http://127.0.0.1:{port}{METRICS_PATH}"
                reply = await sender.send(Call("GET", url, headers, b"", TIMEOUT_MS))
                return reply.body.decode() if reply.status == 200 and not reply.truncated else ""

            async def join(own: str) -> str:
                others = {slot: port for slot, port in self.ports.items() if slot != self.slot}
                texts = dict(zip(others, await asyncio.gather(*map(ask, others.values())), strict=True))
                texts[self.slot] = own
                found = {str(slot): texts[slot] for slot in sorted(texts) if texts[slot]}
                return telemetry.labelled(found, "worker") + _SHOWN.format(len(found))

            yield join
