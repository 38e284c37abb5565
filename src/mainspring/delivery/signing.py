"""Standard Webhooks signatures, symmetric version 1: HMAC-SHA256 over `id.timestamp.body`.

`sign` is on the hot path. `verify` is for receivers: it compares in constant time and turns everything that
is wrong with a message into `InvalidInput`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from mainspring.errors import InvalidInput

PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)


def new_secret(random_bytes: bytes) -> str:
    """The secret made of these random bytes; 24 to 64 of them."""
    if len(random_bytes) not in _KEY_BYTES:
        raise InvalidInput(f"Expected 24 to 64 random bytes, got {len(random_bytes)}")
    return PREFIX + base64.b64encode(random_bytes).decode()


def check_secret(secret: str) -> None:
    """Raise `InvalidInput` unless `secret` is `whsec_` and the base64 of 24 to 64 bytes. Never repeats the secret."""
    _key(secret)


def sign(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header: one signature for every secret, so that a secret can be rotated."""
    message = f"{message_id}.{timestamp}.".encode() + body
    return " ".join([_signature(secret, message) for secret in secrets])


def verify(
    secrets: Sequence[str], headers: Mapping[str, str], body: bytes, *, now: int, tolerance_seconds: int = 300
) -> None:
    """Raise `InvalidInput` unless one of the secrets signed this message within the tolerance of `now` (seconds)."""
    lower = {name.lower(): value for name, value in headers.items()}
    message_id, sent_at, signatures = (
        _header(lower, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if not (sent_at.isascii() and sent_at.isdigit() and len(sent_at) < 20):
        raise InvalidInput("Expected whole seconds since the epoch as webhook-timestamp, got something else")
    if abs(now - int(sent_at)) > tolerance_seconds:
        raise InvalidInput(f"Expected webhook-timestamp within {tolerance_seconds} s of now, got {sent_at}")
    message = f"{message_id}.{sent_at}.".encode("utf-8", "surrogateescape") + body
    given = [part.encode("utf-8", "replace") for part in signatures.split(" ") if part.startswith("v1,")]
    expected = [_signature(secret, message).encode() for secret in secrets]
    # A list, not a generator: every pair is compared, so the time taken does not tell which one matched.
    if not any([hmac.compare_digest(ours, theirs) for ours in expected for theirs in given]):  # noqa: C419
        raise InvalidInput("Expected a webhook-signature made with the shared secret, got none that matches")


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise InvalidInput(f"Expected the header {name}, got none")
    return value


def _signature(secret: str, message: bytes) -> str:
    # A copy of a keyed state, because `hmac.digest` releases the interpreter lock even for a few bytes, and getting
    # it back while a writer thread is busy takes longer than the digest.
    mac = _keyed(secret).copy()
    mac.update(message)
    return "v1," + binascii.b2a_base64(mac.digest(), newline=False).decode()


@lru_cache(maxsize=4096)
def _keyed(secret: str) -> hmac.HMAC:
    return hmac.new(_key(secret), digestmod="sha256")


def _key(secret: str) -> bytes:
    expected = "Expected a secret of the form whsec_ and the base64 of 24 to 64 bytes"
    if not secret.startswith(PREFIX):
        raise InvalidInput(f"{expected}, got another prefix")
    try:
        key = base64.b64decode(secret[len(PREFIX) :], validate=True)
    except ValueError as error:  # binascii.Error, and text that is not ASCII
        raise InvalidInput(f"{expected}, got text that is not base64") from error
    if len(key) not in _KEY_BYTES:
        raise InvalidInput(f"{expected}, got {len(key)} bytes")
    return key
