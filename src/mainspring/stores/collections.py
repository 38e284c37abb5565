"""Which collections of records are only looked up by key, and never listed.

Stores that keep a collection's key order at a price (one partition, or an index) spread these instead and refuse to
scan them. A collection must be named here before its first record is written, because the name decides where it is.
"""

from __future__ import annotations

from typing import Final

LOOKED_UP: Final = frozenset({"fetch", "idempotency", "lock", "origin"})
