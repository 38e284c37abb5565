"""What callers get, and what they report about work whose outcome is unknown."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

R = TypeVar("R")


class IdempotencyRecord(Struct, Generic[R], frozen=True):
    """The outcome of a key."""

    result: R
    was_replay: bool
    """Whether the result comes from an earlier or concurrent call."""
    key: str
    """The caller's key, or `sha256-` and the digest of the payload. `settle` and `forget` take it."""


class Unresolved(Struct, frozen=True):
    """What is known about work whose outcome is not: `resolve` gets this with the payload."""

    key: str
    started_at: int
    """Milliseconds since the epoch."""
    attempt: int
    """1 for the first holder of the claim."""
    reason: str
    """What happened to the holder, in words."""


class Resolved(Struct, Generic[R], frozen=True):
    """`resolve` found out: the work was done, with this result."""

    result: R


class NotDone(Struct, frozen=True):
    """`resolve` found out: the work was not done and may run."""
