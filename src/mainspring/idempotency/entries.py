"""What a store keeps about a key: one line of JSON, then the result, byte for byte.

    running   somebody holds the claim, until `lease_until` unless it is renewed; past it, the outcome is unknown
    unknown   the holder said itself that it does not know
    free      given up by a holder that was not the first: kept so that versions go on growing, and a first holder
              that was frozen all the while cannot take the claim of a third for its own
    done      the result follows

`running` and `unknown` never expire: a record that merely vanished would let the work run again by itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec
from msgspec import Struct

from mainspring.errors import StoreUnavailable

COLLECTION: Final = "idempotency"


class State(StrEnum):
    RUNNING = "running"
    UNKNOWN = "unknown"
    FREE = "free"
    DONE = "done"


class Header(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The first line."""

    state: State
    fingerprint: str
    token: str = ""
    """Who holds the claim: made up anew for each claim."""
    attempt: int = 1
    """Counts the holders of the claim since it was new."""
    started_at: int = 0
    lease_until: int = 0
    finished_at: int = 0
    reason: str = ""
    form: Literal["json", "bytes"] = "json"


class Entry(Struct, frozen=True):
    header: Header
    body: bytes = b""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header).decode


def encoded(entry: Entry) -> bytes:
    return b"%b\n%b" % (_encode(entry.header), entry.body)


def decoded(value: bytes) -> Entry:
    line, _, body = value.partition(b"\n")
    try:
        return Entry(_decode(line), body)
    except msgspec.DecodeError as error:
        raise StoreUnavailable(f"Expected a record of the idempotency library, got another value: {error}") from error
