"""Attacks with things that are allowed one by one: bodies, payloads and unread answers of the largest size."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from itertools import islice
from typing import Final

from msgspec import Raw

from mainspring.client import CreateTimer
from mainspring.testing.attacks.attack import Attack, Victim
from mainspring.testing.attacks.listener import Tally, peers
from mainspring.testing.attacks.receivers import HANG, LARGE_BYTES, PATIENCE_SECONDS, ask_for, everywhere, held, hosts
from mainspring.testing.target import Answer, TargetServer

BODY: Final = "x" * 262_144
PAYLOAD: Final = Raw(b'"%b"' % (b"x" * 100_000))
_IN_A_BATCH: Final = 9
"""As many payloads as the body of a request holds."""
_AT_ONCE: Final = 8
_RECEIVERS: Final = 40


async def _large_requests(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with everywhere() as listener:
        async with TargetServer(listener=listener, keep=4000) as target, victim.client() as client:
            urls = (f"http://{host}:{target.port}{HANG}" for host in hosts(size))
            await ask_for(client, urls, method="POST", body=BODY)
            await asyncio.sleep(max(0.0, until - time.monotonic()))
            return held(target)


async def _large_payloads(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with everywhere() as listener:
        async with TargetServer(listener=listener, keep=4000) as target, victim.client() as client:
            numbers = iter(range(size))
            urls = [f"http://{host}:{target.port}{HANG}" for host in hosts(_RECEIVERS)]

            async def ask() -> int:
                created = 0
                while time.monotonic() < until and (batch := list(islice(numbers, _IN_A_BATCH))):
                    timers = [_timer(number, urls[number % len(urls)]) for number in batch]
                    created += (await client.timers.create_batch(timers)).created
                return created

            created = sum(await asyncio.gather(*(ask() for _ in range(_AT_ONCE))))
            await asyncio.sleep(max(0.0, until - time.monotonic()))
            return created


def _timer(number: int, url: str) -> CreateTimer:
    return CreateTimer(
        timer_id=f"large-{number}",
        delay_seconds=0,
        callback_url=url,
        callback_timeout_seconds=PATIENCE_SECONDS,
        payload=PAYLOAD,
    )


async def _unread_results(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    async with TargetServer() as target, victim.client() as client:
        target.script("/", Answer(body=b"\x01" * LARGE_BYTES))
        view = await client.fetches.create(target.url)
        await client.fetches.wait(view.req_id, seconds=seconds)
    body = json.dumps({"reqId": view.req_id}).encode()
    ask = (
        f"POST /v1/fetches/get HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {victim.token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def take_nothing(peer: socket.socket, tally: Tally) -> None:
        await asyncio.get_running_loop().sock_sendall(peer, ask)
        tally.total += 1
        await asyncio.sleep(seconds)

    return await peers(victim, until - time.monotonic(), size, take_nothing)


BULK_ATTACKS: Final = (
    Attack(
        name="large-requests",
        what="Fetches with bodies of 256 KB from hosts that never answer, each from its own.",
        run=_large_requests,
        size=800,
        counts="calls held",
    ),
    Attack(
        name="large-payloads",
        what="Timers with payloads of 100 KB, all due at once, to a few hosts that never answer.",
        run=_large_payloads,
        size=5_400,
        counts="timers created",
    ),
    Attack(
        name="unread-results",
        what="Readers of the result of a fetch, six million bytes as JSON, who ask and take nothing.",
        run=_unread_results,
        size=60,
        counts="results asked for",
    ),
)
