"""Claims that may be in the store although nobody works under them.

A store that stalls may take a write, answer too late, and apply it in the end. To everybody else, a claim that arrived
like that is work that was begun and never ended: unknown for ever. Only the process that tried to write it knows
better. So it remembers such claims by their tokens: its own callers see what was there before them, and for everybody
else they are withdrawn as soon as the store answers. The same holds for a claim that could not be released after its
work had failed. What a process knows is gone when it ends: then all that is left is what the lease says.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mainspring import telemetry
from mainspring.errors import StoreUnavailable
from mainspring.idempotency.entries import Entry, EntryState, Header, decoded, encoded, first_version, freed, new_token

if TYPE_CHECKING:
    from mainspring.idempotency.holder import Claim, ClaimContext

RETRY_SECONDS: Final = 1.0
TRIES: Final = 3_600
REMEMBERED: Final = 10_000
AT_ONCE: Final = 100
"""How many are withdrawn in one turn: in a program with threads, the same thread also renews claims."""
FAILURES: Final = 3
"""How many may fail in one turn before the store counts as away."""
ABSENT: Final = 0


class _Uncertain(Struct, frozen=True):
    claim: Claim
    before: Header | None
    """What the record said before the claim; None if there was none."""
    lands_on: int | None
    """The version over which its write may still be applied; None if that can no longer happen."""


class UncertainClaims:
    """Those of one processor. Shared by threads."""

    def __init__(self, context: ClaimContext) -> None:
        self._context = context
        self._known: dict[str, _Uncertain] = {}
        """By token, even when there is nothing left to withdraw: somebody may have seen the record before."""
        self._waiting: dict[str, _Uncertain] = {}
        """Those that are still to be withdrawn."""
        self._tries_left = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def before(self, header: Header) -> Header:
        """What a record means: if it is a claim of ours under which nobody works, what was there before it."""
        known = self._known.get(header.token) if header.token else None
        if known is None:
            return header
        return known.before or freed(header)

    def add(self, claim: Claim, before: Header | None, *, lands_on: int | None) -> None:
        """Nobody works under this claim: if it is in the store, or ever gets there, it has to be withdrawn."""
        token, uncertain = claim.header.token, _Uncertain(claim, before, lands_on)
        with self._lock:
            self._known[token] = self._waiting[token] = uncertain
            for kept in (self._known, self._waiting):
                if len(kept) > REMEMBERED:
                    del kept[next(iter(kept))]
            is_trying, self._tries_left = self._tries_left > 0, TRIES
        if not is_trying:
            self._context.model.keep_trying(self._try, RETRY_SECONDS)

    async def withdraw(self, claim: Claim, before: Header | None, *, lands_on: int | None) -> None:
        """The same, at once if the store answers. A caller that goes away need not hear that the store is away."""
        is_withdrawn = False
        try:
            is_withdrawn = await self._withdraw(_Uncertain(claim, before, lands_on))
        except StoreUnavailable as error:
            claim.warn_of_staying(error)
        if not is_withdrawn:
            self.add(claim, before, lands_on=lands_on)

    async def _try(self) -> bool:
        """Whether there is more to try."""
        failures = 0
        for token, uncertain in list(self._waiting.items())[:AT_ONCE]:
            if failures == FAILURES:
                break
            try:
                is_withdrawn = await self._withdraw(uncertain)
            except StoreUnavailable:  # which says nothing about the others, unless it keeps happening
                is_withdrawn = False
                failures += 1
            with self._lock:
                if self._waiting.get(token) is uncertain:
                    del self._waiting[token]
                    if not is_withdrawn:
                        self._waiting[token] = uncertain  # after all others
        with self._lock:
            self._tries_left = self._tries_left - 1 if self._waiting else 0
            return self._tries_left > 0

    async def _withdraw(self, uncertain: _Uncertain) -> bool:
        """Put back what was there before the claim, or what keeps it out. False if it has to be looked at again."""
        claim, before, lands_on = uncertain.claim, uncertain.before, uncertain.lands_on
        store, address = self._context.store, claim.identity.address
        while True:
            now = await store.time()
            record = await store.look(address, now=now)
            if record is None:
                if lands_on != ABSENT:
                    return True
                free, version = Entry(freed(claim.header)), first_version(new_token(self._context.model.entropy))
                if await store.claim(address, encoded(free), version=version, now=now) is None:
                    await self._context.write(address, free, expect=version, now=now)
                    return True
                continue
            header = decoded(record).header
            is_there = header.token == claim.header.token
            if not is_there and record.version != lands_on:
                # Somebody else's, which keeps the claim out as long as it stays: a first holder may remove its own.
                return lands_on != ABSENT or header.state is not EntryState.RUNNING or header.attempt > 1
            if before is None and is_there:
                is_written = await store.remove(address, expect=record.version, now=now)
            elif before is None or before.state is EntryState.FREE:
                free = Entry(freed(before or claim.header))
                is_written = await self._context.write(address, free, expect=record.version, now=now)
            else:
                value = encoded(Entry(before))
                is_written = await store.replace(address, value, expect=record.version, now=now, expires_at=None)
            if is_written:
                telemetry.debug("an unused claim was withdrawn", key=claim.identity.key)
                return True
