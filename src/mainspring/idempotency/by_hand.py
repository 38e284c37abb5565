"""What a person decides about a key: looking at it, listing those that are unknown, settling and forgetting one.

Unknown keys are listed by their notes (`entries.NOTES`). A key is noted by a holder that does not know how its work
ended, and by a caller that finds a claim whose lease has passed. So a key whose process died is listed as soon as
anybody has asked for it again, and not before. Notes of keys that are no longer unknown are struck when they are read.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mainspring import unreadable
from mainspring.errors import InvalidInput, StoreUnavailable
from mainspring.idempotency import entries, keys
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.entries import NOTES, Entry, EntryState, Form, Header, ResultKind, decoded, encoded, freed
from mainspring.idempotency.errors import InProgress

RETRY_AFTER_LIMIT: Final = 30
_PAGE: Final = 100


class KeyState(Struct, frozen=True, kw_only=True):
    """What is recorded of a key."""

    scope: str
    key: str
    state: EntryState
    """As everybody sees it: a claim whose lease has passed is unknown."""
    attempt: int
    """How many holders it has had."""
    started_at: int | None = None
    """Milliseconds since the epoch, like all instants here."""
    lease_until: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    reason: str = ""
    """Why it is unknown."""
    result: ResultKind | None = None
    """What settles it, as far as is known."""
    result_bytes: int | None = None
    """The length of what is kept."""


class KeyPage(Struct, frozen=True):
    keys: list[KeyState]
    after: str | None
    """Where the list goes on; None at its end."""


async def look(store: ClaimStore, scope: str, key: str) -> KeyState | None:
    now = await store.time()
    record = await store.look(keys.address(scope, key), now=now)
    if record is None:
        return None
    return _state(scope, key, decoded(record), now, record.expires_at)


async def list_unknown(store: ClaimStore, *, scope: str = "", after: str = "", limit: int = 100) -> KeyPage:
    """A page of keys whose outcome is unknown, of one scope or of all, by their addresses. It may be short, or empty,
    and yet not be the last."""
    now = await store.time()
    prefix = f"{scope}:" if scope else ""
    size = min(limit, _PAGE)
    notes = await store.notes(after=max(after, prefix), limit=size, now=now)
    found: list[KeyState] = []
    for note in notes:
        if not note.key.startswith(prefix):
            return KeyPage(found, None)
        said = unreadable.read_record(NOTES, note, entries.read_note)
        if said is None or (scope and said.scope != scope):
            continue
        record = await store.look(note.key, now=now)
        try:
            entry = None if record is None else decoded(record)
        except StoreUnavailable:  # it cannot be read, and is named elsewhere
            continue
        if entry is None or not entries.is_unknown(entry.header, now):
            await store.strike(note, now=now)
            continue
        found.append(replace(_state(said.scope, said.key, entry, now, None), result=said.result))
    return KeyPage(found, notes[-1].key if len(notes) == size else None)


async def settle(store: ClaimStore, scope: str, key: str, form: Form, body: bytes, *, ttl_ms: int) -> None:
    """Record that the work of this key was done, with this result."""
    address = keys.address(scope, key)
    while True:
        now = await store.time()
        record = await store.look(address, now=now)
        state = None if record is None else decoded(record).header.state
        if record is None or state in (EntryState.DONE, EntryState.FREE):
            raise InvalidInput(
                f"The key {key!r} is {state or 'unused'}: only one whose outcome is unknown can be settled"
            )
        header = decoded(record).header
        if entries.is_live(header, now):
            raise in_progress(header, key, now)
        done = replace(header, state=EntryState.DONE, finished_at=now, lease_until=0, reason="", form=form)
        if await _write(store, address, Entry(done, body), expect=record.version, now=now, ttl_ms=ttl_ms):
            return


async def forget(store: ClaimStore, scope: str, key: str, *, ttl_ms: int) -> bool:
    """Let the work of this key run again, whatever is recorded of it. Refused while somebody is working on it."""
    address = keys.address(scope, key)
    while True:
        now = await store.time()
        record = await store.look(address, now=now)
        if record is None:
            return False
        header = decoded(record).header
        if entries.is_live(header, now):
            raise in_progress(header, key, now)
        if await _write(store, address, Entry(freed(header)), expect=record.version, now=now, ttl_ms=ttl_ms):
            return header.state is not EntryState.FREE


async def result_kind(store: ClaimStore, scope: str, key: str) -> ResultKind | None:
    """What the results of a key are, if it is noted as unknown."""
    address = keys.address(scope, key)
    now = await store.time()
    # The note of an address is the first after what precedes it.
    for note in await store.notes(after=address[:-1], limit=_PAGE, now=now):
        if note.key == address:
            said = unreadable.read_record(NOTES, note, entries.read_note)
            return None if said is None else said.result
    return None


def in_progress(header: Header, key: str, now: int) -> InProgress:
    retry_after = max(1, min(RETRY_AFTER_LIMIT, (now - header.started_at) // 1000))
    return InProgress(still_in_progress(key), key=key, retry_after=retry_after)


def still_in_progress(key: str) -> str:
    return f"The work of the key {key!r} is still in progress"


def _state(scope: str, key: str, entry: Entry, now: int, expires_at: int | None) -> KeyState:
    header = entry.header
    is_unknown = entries.is_unknown(header, now)
    is_done = header.state is EntryState.DONE
    return KeyState(
        scope=scope,
        key=key,
        state=EntryState.UNKNOWN if is_unknown else header.state,
        attempt=header.attempt,
        started_at=header.started_at or None,
        lease_until=header.lease_until or None,
        finished_at=header.finished_at or None,
        expires_at=expires_at,
        reason=entries.reason_of(header) if is_unknown else "",
        result=header.form if is_done else None,
        result_bytes=len(entry.body) if is_done else None,
    )


async def _write(store: ClaimStore, address: str, entry: Entry, *, expect: int, now: int, ttl_ms: int) -> bool:
    return await store.replace(address, encoded(entry), expect=expect, now=now, expires_at=now + ttl_ms)
