"""A good client during an attack, and the memory of the attacked server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mainspring.testing.attacks.attack import HOST, Victim

_BETWEEN_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 10.0
_SAMPLE_SECONDS: Final = 0.1
_TIMER: Final = b'{"timerId":"witness","delaySeconds":86400,"callbackUrl":"http://127.0.0.1:9/"}'


@dataclass(frozen=True, slots=True)
class Experience:
    """What a good client saw."""

    waits: tuple[float, ...]
    """Seconds from connecting to the last byte of the answer, of every request that was answered with 200."""
    refused: int
    """Requests that were not."""

    @property
    def p99(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)] if self.waits else float("inf")

    @property
    def longest(self) -> float:
        return max(self.waits, default=float("inf"))


def health(victim: Victim) -> bytes:
    """What a load balancer asks."""
    return f"GET /health HTTP/1.1\r\nhost: localhost:{victim.port}\r\nconnection: close\r\n\r\n".encode()


def create(victim: Victim) -> bytes:
    """What a client with a token asks, which waits for the store: the same timer again and again, far in the future."""
    head = (
        f"POST /v1/timers/create HTTP/1.1\r\nhost: localhost:{victim.port}\r\nauthorization: Bearer {victim.token}\r\n"
        f"content-length: {len(_TIMER)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + _TIMER


async def witness(victim: Victim, ask: bytes, *, seconds: float) -> Experience:
    """Ask one thing again and again, each time on a connection of its own."""
    until = time.monotonic() + seconds
    waits: list[float] = []
    refused = 0
    while time.monotonic() < until:
        began = time.monotonic()
        if await is_answered(victim, ask):
            waits.append(time.monotonic() - began)
        else:
            refused += 1
        await asyncio.sleep(_BETWEEN_SECONDS)
    return Experience(tuple(waits), refused)


async def is_answered(victim: Victim, ask: bytes, *, seconds: float = _PATIENCE_SECONDS) -> bool:
    """Whether there is a 200 in time."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(HOST, victim.port)
            try:
                writer.write(ask)
                return (await reader.read()).startswith(b"HTTP/1.1 200 ")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def resident_bytes(process_id: int) -> int:
    """The memory that a process takes now (Linux). 0: it has ended."""
    try:
        return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * 4096
    except (FileNotFoundError, ProcessLookupError):
        return 0


async def most_resident_bytes(process_id: int, *, seconds: float) -> int:
    """The most that it takes meanwhile."""
    until = time.monotonic() + seconds
    most = 0
    while time.monotonic() < until:
        most = max(most, resident_bytes(process_id))
        await asyncio.sleep(_SAMPLE_SECONDS)
    return most
