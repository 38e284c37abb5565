"""What a store keeps about a key: one line of JSON, then the result, byte for byte.

    running   somebody holds the claim, until `lease_until` unless it is renewed; past it, the outcome is unknown
    unknown   the holder itself said that it does not know
    free      given up by a holder that was not the first, or kept free for a while: a claim under which nobody works,
              but which a stalled store may still apply, then finds a record and is refused
    done      the result follows

`running` and `unknown` never expire: a record that merely vanished would let the work run again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring import unreadable
from mainspring.errors import StoreUnavailable
from mainspring.model import Record

COLLECTION: Final = "idempotency"
NOTES: Final = "idempotency-unknown"
"""The collection in which keys are noted that somebody has found to be unknown. Records are found only by their keys,
and most databases spread them; of notes there are few, so they can be listed. A note is a hint: the record counts."""

Form = Literal["json", "bytes"]
ResultKind = Literal["json", "bytes", "answer"]
"""What results are to those who settle a key by hand: a value of JSON, bytes, or an HTTP answer, which is kept as
bytes."""


class EntryState(StrEnum):
    RUNNING = "running"
    UNKNOWN = "unknown"
    FREE = "free"
    DONE = "done"


class Header(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The first line."""

    state: EntryState
    fingerprint: str
    token: str = ""
    """Who holds the claim: a new one for each claim."""
    attempt: int = 1
    """Counts the holders of the claim since it was first made."""
    started_at: int = 0
    lease_until: int = 0
    finished_at: int = 0
    reason: str = ""
    form: Form = "json"


class Note(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A key whose outcome was unknown when somebody looked."""

    scope: str
    key: str
    result: ResultKind = "json"


def new_token(entropy: Callable[[int], bytes]) -> str:
    return entropy(8).hex()


def first_version(token: str) -> int:
    """The version of a new record: random, like the token, so that no record at its address has had it before."""
    return int(token[:15], 16) + 1


def freed(header: Header) -> Header:
    return Header(state=EntryState.FREE, fingerprint=header.fingerprint, attempt=header.attempt)


class Entry(Struct, frozen=True):
    header: Header
    body: bytes = b""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header).decode
_decode_note = msgspec.json.Decoder(Note).decode


def read_header(value: bytes) -> Header:
    """Raises ValueError if there is none."""
    return _decode(value.partition(b"\n")[0])


def encoded(entry: Entry) -> bytes:
    return b"%b\n%b" % (_encode(entry.header), entry.body)


def decoded(record: Record) -> Entry:
    """An unreadable one is set aside: whether its work was done is unknown, so it does not run."""
    try:
        return Entry(read_header(record.value), record.value.partition(b"\n")[2])
    except ValueError as error:
        reason = unreadable.reason_of(error)
        unreadable.set_aside(unreadable.Unreadable(COLLECTION, record.key, reason, record.version))
        raise StoreUnavailable(f"Expected a record of the idempotency library, got another value: {error}") from error


def read_note(value: bytes) -> Note:
    """Raises ValueError if it is none."""
    return _decode_note(value)


def write_note(note: Note) -> bytes:
    return _encode(note)


def is_live(header: Header, now: int) -> bool:
    return header.state is EntryState.RUNNING and now < header.lease_until


def is_unknown(header: Header, now: int) -> bool:
    return header.state is EntryState.UNKNOWN or (header.state is EntryState.RUNNING and now >= header.lease_until)


def reason_of(header: Header) -> str:
    return header.reason or "the work was started, and the process running it stopped responding"


def as_unknown(header: Header, attempt: int) -> Header:
    return replace(header, state=EntryState.UNKNOWN, token="", lease_until=0, reason=reason_of(header), attempt=attempt)
