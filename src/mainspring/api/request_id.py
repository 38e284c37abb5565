"""The id under which a request is answered and logged: the caller's own, or one that no other request has."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping
from typing import Final

_GIVEN: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_PREFIX: Final = secrets.token_hex(6)
_numbers: Final = itertools.count(1)


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    for name in (b"x-request-id", b"x-correlation-id"):
        given = headers.get(name)
        if given is not None and _GIVEN.fullmatch(given):
            return given.decode("ascii")
    return f"{_PREFIX}-{next(_numbers)}"
