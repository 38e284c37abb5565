"""Tells other instances that something has changed: a row was written to a shard of theirs, or the members changed.

One small request per instance carries everything that has gathered in `GATHER_SECONDS`, and only one at a time is on
its way to each. Nothing waits for it or fails with it: a lost wake-up costs its receiver one look.
What waits is bounded: one entry per shard, and at most `INSTANCES_LIMIT` instances.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

from mainspring import telemetry
from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import MakesSenders, Sender

PATH: Final = "/internal/wake"
GATHER_SECONDS: Final = 0.005
TIMEOUT_MS: Final = 1000
INSTANCES_LIMIT: Final = 1000
FAREWELL_SECONDS: Final = 0.5


class Wake(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one instance tells another."""

    shards: tuple[tuple[int, int], ...] = ()
    """Shard, and the earliest due instant of a row that was written to it."""
    members: bool = False
    """An instance has come or is about to go."""


class Wakeups:
    """Use as `async with`; `tell` and `announce` never wait."""

    def __init__(self, secret: str, *, senders: MakesSenders = Sender) -> None:
        # The addresses come from the lease records of this cluster, so none is forbidden.
        self._sender = senders(guard=Guard(allow=("0.0.0.0/0", "::/0"), allow_loopback=True))
        self._headers = (("content-type", "application/json"), ("authorization", f"Bearer {secret}"))
        self._shards: dict[str, dict[int, int]] = {}
        self._members: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._sender.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is under way gets a moment: a farewell is worth more than the wait for the next renewal."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=FAREWELL_SECONDS)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._sender.__aexit__(kind, error, trace)

    def tell(self, address: str, shard_id: int, due_at: int) -> None:
        """A row of this shard, which belongs to the instance at `address`, is due then."""
        shards = self._shards.setdefault(address, {})
        shards[shard_id] = min(due_at, shards.get(shard_id, due_at))
        self._send_soon(address)

    def announce(self, address: str) -> None:
        """The instance at `address` should check who the members are."""
        self._members.add(address)
        self._send_soon(address)

    def _send_soon(self, address: str) -> None:
        if address in self._tasks:
            return
        if len(self._tasks) >= INSTANCES_LIMIT:
            self._shards.pop(address, None)
            self._members.discard(address)
            return
        self._tasks[address] = asyncio.get_running_loop().create_task(self._send_all(address))

    async def _send_all(self, address: str) -> None:
        try:
            while address in self._shards or address in self._members:
                await asyncio.sleep(GATHER_SECONDS)
                wake = Wake(shards=tuple(self._shards.pop(address, {}).items()), members=address in self._members)
                self._members.discard(address)
                body = msgspec.json.encode(wake)
                reply = await self._sender.send(Call("POST", address + PATH, self._headers, body, TIMEOUT_MS))
                telemetry.wakeups.add("told" if reply.status == 200 else "lost")
                if reply.status != 200:
                    telemetry.debug("a wake-up was lost", address=address, reason=reply.detail or reply.status)
        finally:
            self._tasks.pop(address, None)
