"""The ids under which a request is answered and logged.

Every request has a request id: the caller's own (`X-Request-ID`, or else `X-Correlation-ID`), or one that no other has.
A correlation id is the caller's, too: it names what several requests and calls belong to. It comes back as it came, and
goes on with what a request creates. An id that is not 1 to 128 visible ASCII characters is treated as none.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping
from typing import Final

REQUEST_ID: Final = b"x-request-id"
CORRELATION_ID: Final = b"x-correlation-id"
_GIVEN: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_PREFIX: Final = secrets.token_hex(6)
_numbers: Final = itertools.count(1)


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    for name in (REQUEST_ID, CORRELATION_ID):
        given = headers.get(name)
        if given is not None and _GIVEN.fullmatch(given):
            return given.decode("ascii")
    return new_request_id()


def new_request_id() -> str:
    return f"{_PREFIX}-{next(_numbers)}"


def correlation_id_of(headers: Mapping[bytes, bytes]) -> bytes:
    """Empty if there is none that can be repeated."""
    given = headers.get(CORRELATION_ID, b"")
    return given if _GIVEN.fullmatch(given) else b""


def id_headers(headers: Mapping[bytes, bytes], request_id: str) -> list[tuple[bytes, bytes]]:
    """Those of the answer to a request with these headers."""
    own = [(REQUEST_ID, request_id.encode("ascii"))]
    correlation_id = correlation_id_of(headers)
    return [*own, (CORRELATION_ID, correlation_id)] if correlation_id else own
