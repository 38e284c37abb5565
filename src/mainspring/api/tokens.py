"""Who is let in: whoever shows a token whose digest is known.

A header that was let in once is remembered, so that its token is not hashed with every request. It is looked up by
Python's own hash of bytes, which has a secret key, so nothing can be learnt from how long that takes.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

REMEMBERED: Final = 64
"""Headers; one token may be written in several ways."""


def token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    def __init__(self, digests: tuple[bytes, ...]) -> None:
        """SHA-256 of every token that is let in."""
        self._digests = digests
        self._admitted: set[bytes] = set()

    def admit(self, header: bytes) -> bool:
        """Whether an `Authorization` header shows a token that is let in."""
        if header in self._admitted:
            return True
        token = header[7:].strip(b" \t") if header[:7].lower() == b"bearer " else b""
        if not token:  # nothing is no secret, not even where that is the one that is known
            return False
        digest = hashlib.sha256(token).digest()
        if not any(hmac.compare_digest(digest, known) for known in self._digests):
            return False
        if len(self._admitted) < REMEMBERED:
            self._admitted.add(header)
        return True
