"""A good client beside an attack, and the memory of the server that bears it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mainspring.testing.attacks.listener import HOST

_BETWEEN_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a good client saw."""

    waits: tuple[float, ...]
    """Seconds from connecting to the last byte of the answer, of every request that was answered with 200."""
    refused: int
    """Requests that were not."""

    @property
    def p99(self) -> float:
        return sorted(self.waits)[int(len(self.waits) * 0.99)] if self.waits else float("inf")


async def witness(port: int, *, seconds: float, token: str = "", path: str = "/health") -> Testimony:
    """Ask one thing after another, each on a connection of its own."""
    authorization = f"authorization: Bearer {token}\r\n" if token else ""
    ask = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}connection: close\r\n\r\n".encode()
    until = time.monotonic() + seconds
    waits: list[float] = []
    refused = 0
    while time.monotonic() < until:
        began = time.monotonic()
        if await _is_answered(port, ask):
            waits.append(time.monotonic() - began)
        else:
            refused += 1
        await asyncio.sleep(_BETWEEN_SECONDS)
    return Testimony(tuple(waits), refused)


def resident_bytes(process_id: int) -> int:
    """The memory that a process takes now (Linux)."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * 4096


async def _is_answered(port: int, ask: bytes) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(ask)
                return (await reader.read()).startswith(b"HTTP/1.1 200 ")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
