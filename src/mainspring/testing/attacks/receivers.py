"""Attacks by hosts that timers and fetches call, whether or not whoever chose their URLs meant harm.

Every address of 127.0.0.0/8 is this machine, so thousands of hosts cost one listener. It is bound to the loopback
device: nobody else reaches it.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, repeat
from typing import Final, Unpack

from mainspring.client import AsyncClient, CreateTimer, RetryPolicy
from mainspring.errors import MainspringError
from mainspring.fetches.arguments import FetchFields
from mainspring.store import BATCH_LIMIT
from mainspring.testing.attacks.attack import Attack, Victim
from mainspring.testing.target import Answer, TargetServer

PATIENCE_SECONDS: Final = 120.0
"""How long a caller is asked to wait for an answer that never comes."""
MEMBERS: Final = 50_000
LARGE_BYTES: Final = 1_000_000
ORIGIN_SECONDS: Final = 0.5
HANG: Final = "/hang"
_AT_ONCE: Final = 16
_AGAIN: Final = RetryPolicy(max_attempts=1000, initial_interval_seconds=0.2, backoff_multiplier=1.0)


async def _packed_answers(victim: Victim, seconds: float, size: int) -> int:
    """Timers that are called again and again, and fetches, which read more of an answer."""
    until = time.monotonic() + seconds
    packed = Answer(status=503, body=gzip.compress(b"") * MEMBERS, headers=(("content-encoding", "gzip"),))
    async with TargetServer() as target, victim.client() as client:
        target.script("/", packed)
        await _create(client, "again", [target.url] * size)
        while time.monotonic() < until:
            await ask_for(client, [target.url] * _AT_ONCE)
            await asyncio.sleep(0.1)
        return len(target.requests)


async def _escaped_answers(victim: Victim, seconds: float, size: int) -> int:
    """Each is written as six times its length when it goes on to its origin, which takes its time."""
    until = time.monotonic() + seconds
    async with TargetServer() as target, TargetServer(keep=1) as origin, victim.client() as client:
        target.script("/", Answer(body=b"\x01" * LARGE_BYTES))
        origin.script("/", Answer(delay_seconds=ORIGIN_SECONDS))
        while time.monotonic() < until:
            await ask_for(client, [target.url] * size, result_url=origin.url)
            await asyncio.sleep(1.0)
        return len(target.requests)


async def _haste(victim: Victim, seconds: float, size: int) -> int:
    async with TargetServer() as target, victim.client() as client:
        target.script("/", Answer(body=b'{"nextExecuteAt":0}'))
        await _create(client, "again", [target.url] * size)
        await asyncio.sleep(seconds)
        return len(target.requests)


async def _dead_destinations(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with black_hole() as port:
        async with victim.client() as client:
            created = await _create(client, "dead", (f"http://{host}:{port}" for host in hosts(size)))
            await asyncio.sleep(until - time.monotonic())
    return created


async def _hanging_hosts(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with everywhere() as listener:
        async with TargetServer(listener=listener) as target, victim.client() as client:
            urls = [f"http://{host}:{target.port}" for host in hosts(size)]
            await _create(client, "first", urls)
            with suppress(TimeoutError):
                await target.wait_for(size, seconds=seconds / 3)
            await _create(client, "second", (f"{url}{HANG}" for url in urls))
            await asyncio.sleep(until - time.monotonic())
            return held(target)


async def _hanging_origins(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with everywhere() as listener:
        async with TargetServer(listener=listener) as target, victim.client() as client:
            origins = (f"http://{host}:{target.port}{HANG}" for host in hosts(size))
            await ask_for(client, repeat(target.url), origins=origins)
            await asyncio.sleep(until - time.monotonic())
            return held(target)


async def _slow_fetches(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    async with TargetServer() as target, victim.client() as client:
        await ask_for(client, [f"{target.url}{HANG}"] * size)
        await asyncio.sleep(until - time.monotonic())
        return held(target)


async def _slow_fetches_everywhere(victim: Victim, seconds: float, size: int) -> int:
    until = time.monotonic() + seconds
    with everywhere() as listener:
        async with TargetServer(listener=listener) as target, victim.client() as client:
            await ask_for(client, (f"http://{host}:{target.port}{HANG}" for host in hosts(size)))
            await asyncio.sleep(until - time.monotonic())
            return held(target)


RECEIVER_ATTACKS: Final = (
    Attack(
        name="packed-answers",
        what=f"Answers of {MEMBERS:,} empty gzip members, to timers and to fetches.",
        run=_packed_answers,
        size=40,
        counts="answers given",
    ),
    Attack(
        name="escaped-answers",
        what="Answers of a million control characters to many fetches at once, for an origin that is slow.",
        run=_escaped_answers,
        size=200,
        counts="answers given",
    ),
    Attack(
        name="haste",
        what="A receiver that asks for the next call at once, every time.",
        run=_haste,
        size=200,
        counts="calls made",
        most_per_second=1.5,
    ),
    Attack(
        name="dead-destinations",
        what="More destinations that nobody can connect to than timers fit into memory.",
        run=_dead_destinations,
        size=10_000,
        counts="timers created",
    ),
    Attack(
        name="hanging-hosts",
        what="Hosts that answer once and then never again, more than there are slots.",
        run=_hanging_hosts,
        size=1_500,
        counts="calls held",
    ),
    Attack(
        name="hanging-origins",
        what="Results for origins that never answer, each a host of its own, more than there are slots.",
        run=_hanging_origins,
        size=1_500,
        counts="calls held",
    ),
    Attack(
        name="slow-fetches",
        what="Fetches from one host that never answers, more than there are places.",
        run=_slow_fetches,
        size=2_500,
        counts="calls held",
    ),
    Attack(
        name="slow-fetches-everywhere",
        what="The same, each from a host of its own.",
        run=_slow_fetches_everywhere,
        size=2_500,
        counts="calls held",
    ),
)


def hosts(size: int) -> Iterator[str]:
    """This many addresses of this machine, none of which anybody else uses."""
    return (f"127.{1 + number // 62_500}.{1 + number // 250 % 250}.{1 + number % 250}" for number in range(size))


@contextmanager
def everywhere() -> Iterator[socket.socket]:
    """A socket on every address of the loopback device, and on no other."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        listener.bind(("", 0))
        yield listener


@contextmanager
def black_hole() -> Iterator[int]:
    """A port where connections are neither accepted nor refused: its queue is full, so the system drops what comes."""
    with everywhere() as listener:
        listener.listen(0)
        port: int = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for filler in fillers:
                filler.close()


def held(target: TargetServer) -> int:
    return sum(request.path == HANG for request in target.requests)


async def _create(client: AsyncClient, name: str, urls: Iterable[str]) -> int:
    """Timers that are due at once; returns how many."""
    waiting = enumerate(urls)
    created = 0
    while batch := list(islice(waiting, BATCH_LIMIT)):
        timers = [
            CreateTimer(
                timer_id=f"{name}-{number}",
                delay_seconds=0,
                callback_url=url,
                callback_timeout_seconds=PATIENCE_SECONDS,
                retry_policy=_AGAIN,
            )
            for number, url in batch
        ]
        created += (await client.timers.create_batch(timers)).created
    return created


async def ask_for(
    client: AsyncClient, urls: Iterable[str], *, origins: Iterable[str] | None = None, **fields: Unpack[FetchFields]
) -> None:
    """Ask for calls of these URLs, with these origins, a few at a time. A refusal is what a server may answer."""
    waiting = zip(urls, repeat(None) if origins is None else origins, strict=False)
    fields.setdefault("timeout_seconds", PATIENCE_SECONDS)

    async def ask() -> None:
        for url, origin in waiting:
            try:
                asked = fields if origin is None else {**fields, "result_url": origin}
                await client.fetches.create(url, **asked)
            except MainspringError:
                await asyncio.sleep(0.1)

    await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
