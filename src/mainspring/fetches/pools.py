"""The executors that are processes of their own: which of them are alive, and which is to make a call.

An executor is alive while its lease, a record of the collection `executor`, has not expired. It is asked to make a
call by a small request that names the fetch; the executor itself then writes that it runs it, which only one can, and
makes the call afterwards. So it does no harm to ask a second one when the first was not reached, or did not answer.

Leases are read when somebody asks for a pool, and those of executors that have calls of ours for as long as they do:
an instance whose fetches go to no pool reads nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.fetches.messages import ExecutorView
from mainspring.kernel.ownership import Lease
from mainspring.store import RecordStore, all_records
from mainspring.unreadable import read_record

EXECUTORS: Final = "executor"
"""The collection of the leases."""
PATH: Final = "/internal/fetches/execute"
CUT_OFF_PATH: Final = "/internal/fetches/cut-off"
FRESH_SECONDS: Final = 0.5
"""How long leases that were read are considered fresh."""
WAIT_SECONDS: Final = 1.0
"""How long a full executor lets an instance wait for a place."""
TIMEOUT_MS: Final = 5_000
TRIES: Final = 3
PROBES: Final = 8
"""For how many fetches to one host a place in a pool is sought although none is known to be free."""
BUSY_SECONDS: Final = 2.0
"""How long it is believed that executors have no place for a host."""
BUSY_KEPT: Final = 1000


class ExecutorLease(Lease, frozen=True, rename="camel"):
    """What an executor says about itself. `instance` is its name, `left` says that it takes no more calls."""

    pool: str = ""
    limit: int = 0
    in_flight: int = 0


class Execute(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Asks an executor to make the call of a fetch."""

    req_id: str


class ExecuteReply(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The fetch was looked at: it runs here, or no longer needs anybody. `room`: how many more there is room for."""

    room: int
    is_busy: bool = False
    """It still waits: its host has as many calls here as it may have."""


class CutOff(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Tells whoever makes the call of a fetch, be it an executor or an instance, that the fetch was cancelled."""

    mark: str


def pool_of(executor: str) -> str:
    """The pool of an executor by its name; empty for an instance, which has none."""
    return executor.rpartition("/")[0]


_read_lease = msgspec.json.Decoder(ExecutorLease).decode


class Pools:
    """Use as `async with`. Knows the live executors as of a moment ago."""

    def __init__(
        self,
        *,
        records: RecordStore,
        clock: Clock,
        randomness: random.Random,
        secret: Callable[[], str],
        is_dead: Callable[[Lease], bool],
        senders: MakesSenders = Sender,
    ) -> None:
        """`secret` is what executors know this cluster by."""
        self._records = records
        self._clock = clock
        self._random = randomness
        self._secret = secret
        self._is_dead = is_dead
        # The addresses come from the lease records of this cluster, so none is forbidden.
        self._sender = senders(guard=Guard(allow=("0.0.0.0/0", "::/0"), allow_loopback=True))
        self._leases: dict[str, ExecutorLease] = {}
        """The executors to ask: the live ones, except those that could not be reached or did not answer."""
        self._alive: frozenset[str] = frozenset()
        self._read_at = -FRESH_SECONDS
        self._versions: dict[str, int] = {}
        """The versions of the leases at the last reading: a renewal raises them."""
        self._silent: dict[str, int] = {}
        """Executors that did not answer, and the version that their lease had then."""
        self._used: set[str] = set()
        """Executors that may have calls of ours: their deaths matter here."""
        self._busy: dict[tuple[str, str], float] = {}
        """Pools and hosts for which there was no place, and until when that is believed."""

    async def __aenter__(self) -> Self:
        await self._sender.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sender.__aexit__(kind, error, trace)

    # --- who is alive ---------------------------------------------------------------------------------

    async def views(self) -> tuple[ExecutorView, ...]:
        await self._refresh()
        return tuple(
            ExecutorView(
                executor=lease.instance,
                pool=lease.pool,
                address=lease.address,
                in_flight=lease.in_flight,
                limit=lease.limit,
            )
            for lease in self._leases.values()
        )

    async def lives(self, executor: str) -> bool:
        """Asks the store. An executor that lives is watched from then on."""
        record = await self._records.get_record(EXECUTORS, executor, now=self._clock.now_ms())
        if record is None:
            return False
        lease = read_record(EXECUTORS, record, _read_lease)
        alive = lease is None or not self._is_dead(lease)  # whoever renews a lease that we cannot read is alive
        if alive:
            self._used.add(executor)
        return alive

    async def executor_gone(self) -> bool:
        """Whether an executor that may have calls of ours was found dead. Each is reported once."""
        if not self._used:
            return False
        await self._refresh()
        before = len(self._used)
        self._used &= self._alive
        return len(self._used) < before

    async def _refresh(self) -> None:
        if self._clock.monotonic() - self._read_at < FRESH_SECONDS:
            return
        found: dict[str, ExecutorLease] = {}
        versions: dict[str, int] = {}
        async for record in all_records(self._records, EXECUTORS, self._clock.now_ms):
            lease = read_record(EXECUTORS, record, _read_lease)
            if lease is not None and not self._is_dead(lease):
                found[lease.instance] = lease
                versions[lease.instance] = record.version
        # A frozen one holds up every fetch that it is asked to make. One that renews its lease is worth another try.
        self._silent = {name: version for name, version in self._silent.items() if versions.get(name) == version}
        self._leases = {name: lease for name, lease in found.items() if name not in self._silent}
        self._versions = versions
        self._alive = frozenset(found)
        self._read_at = self._clock.monotonic()

    # --- who makes a call -----------------------------------------------------------------------------

    def room(self, pool: str, host: str) -> int:
        """For how many fetches to a host a place may be found now. Never 0, or nobody would notice new places."""
        if self._busy.get((pool, host), 0.0) > self._clock.monotonic():
            return PROBES
        places = (lease.limit - lease.in_flight for lease in self._leases.values() if lease.pool == pool)
        return max(PROBES, sum(places))

    async def hand_over(self, pool: str, req_id: str, *, host: str) -> bool:
        """Ask executors of a pool, the least busy first, to make a call. False: none is alive.

        The record of the fetch tells whether one of them does.
        """
        await self._refresh()
        able = [lease for lease in self._leases.values() if lease.pool == pool and not lease.left]
        able.sort(key=lambda lease: (lease.in_flight >= lease.limit, lease.in_flight, self._random.random()))
        for lease in able[:TRIES]:
            if await self._ask(lease, req_id, host):
                return True
        return bool(able)

    async def _ask(self, lease: ExecutorLease, req_id: str, host: str) -> bool:
        """False: it certainly does not make the call now."""
        self._used.add(lease.instance)
        self._note(lease.instance, lease.in_flight + 1)
        reply = await self._post(lease.address + PATH, Execute(req_id=req_id))
        told = _executing(reply)
        if told is not None:
            self._note(lease.instance, lease.limit - told.room)
            if told.is_busy:
                if len(self._busy) >= BUSY_KEPT:
                    self._busy.clear()
                self._busy[lease.pool, host] = self._clock.monotonic() + BUSY_SECONDS
            return not told.is_busy
        telemetry.debug(
            "an executor did not accept a call", executor=lease.instance, reason=reply.detail or reply.status
        )
        if reply.problem == "exhausted":
            return False  # that says nothing about the executor
        if not reply.sent:
            self._leases.pop(lease.instance, None)  # until the leases are read again
        elif reply.status is not None:
            self._note(lease.instance, lease.limit)
        elif self._leases.pop(lease.instance, None) is not None:
            self._silent[lease.instance] = self._versions[lease.instance]
        return reply.status is None and reply.sent

    async def cut_off(self, address: str, mark: str) -> None:
        """Tell whoever is there that the call of this mark is no longer wanted. If that is lost, the call goes on."""
        reply = await self._post(address + CUT_OFF_PATH, CutOff(mark=mark))
        if reply.status != 200:
            telemetry.debug(
                "a cancelled call was not interrupted", address=address, reason=reply.detail or reply.status
            )

    async def _post(self, url: str, message: Execute | CutOff) -> Reply:
        headers = (("content-type", "application/json"), ("authorization", f"Bearer {self._secret()}"))
        return await self._sender.send(Call("POST", url, headers, msgspec.json.encode(message), TIMEOUT_MS))

    def _note(self, executor: str, in_flight: int) -> None:
        known = self._leases.get(executor)
        if known is not None:
            self._leases[executor] = replace(known, in_flight=in_flight)


def _executing(reply: Reply) -> ExecuteReply | None:
    """What an executor answered. Not every 200 is one: the port of a dead executor may be somebody else's by now."""
    try:
        return msgspec.json.decode(reply.body, type=ExecuteReply) if reply.status == 200 else None
    except msgspec.DecodeError:
        return None
