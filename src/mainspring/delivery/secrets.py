"""What is shown of a stored call. Secrets can be written but not read back: `***` stands in their place.

A header or a query parameter is a secret if its name says so, or if a setting names it. A `***` that comes back in an
update means the stored value, so what was shown can be sent back as it is. Anywhere else it stands for nothing and is
refused: it would be sent to the receiver, whose refusal nobody would understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mainspring.errors import FieldError, InvalidInput

HIDDEN: Final = "***"
WORDS: Final = ("auth", "cookie", "credential", "key", "pass", "secret", "session", "signature", "token")
"""A name that contains one of these is the name of a secret."""
_SAYS_SO: Final = re.compile("|".join(WORDS) + "|^sig$", re.IGNORECASE)
_USER: Final = re.compile(r"(?<=://)[^/?#]*@")
_PARAMETER: Final = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")


class Secrets:
    """Knows what is secret, and what to show instead. `names` adds to those whose names say so."""

    def __init__(self, names: Iterable[str] = (), *, redact_urls: bool = True) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._redact_urls = redact_urls

    def has(self, name: str) -> bool:
        return name.lower() in self._names or _SAYS_SO.search(name) is not None

    def shown(self, headers: dict[str, str]) -> dict[str, str]:
        return {name: HIDDEN if self.has(name) else value for name, value in headers.items()} if headers else headers

    def listed_url(self, url: str) -> str:
        """A URL as lists show it."""
        return self.shown_url(url) if self._redact_urls else url

    def shown_url(self, url: str) -> str:
        """A URL without its user and the values of secret parameters."""

        def hide(parameter: re.Match[str]) -> str:
            return f"{parameter[1]}={HIDDEN}" if self.has(parameter[1]) else parameter[0]

        return _PARAMETER.sub(hide, _USER.sub(f"{HIDDEN}@", url))

    def kept_headers(self, headers: dict[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """Headers to be stored, with the values that `***` stands for."""
        if not any(value == HIDDEN and self.has(name) for name, value in headers.items()):
            return headers
        known = {name.lower(): value for name, value in stored.items()}
        kept = {
            name: known.get(name.lower(), value) if value == HIDDEN and self.has(name) else value
            for name, value in headers.items()
        }
        self.check(kept)
        return kept

    def kept_url(self, url: str, stored: str, pointer: str) -> str:
        """A URL to be stored: if it is what lists show of the stored one, it stands for that."""
        if url != stored and url == self.shown_url(stored):
            return stored
        self.check_url(url, pointer)
        return url

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise `InvalidInput` for every `***` that stands for nothing."""
        errors = tuple(
            _stands_for_nothing("/headers/" + name.replace("~", "~0").replace("/", "~1"))
            for name, value in headers.items()
            if value == HIDDEN and self.has(name)
        )
        if errors:
            raise InvalidInput(errors[0].detail, errors=errors)

    def check_url(self, url: str, pointer: str) -> None:
        if any(value == HIDDEN and self.has(name) for name, value in _PARAMETER.findall(url)):
            error = _stands_for_nothing(pointer)
            raise InvalidInput(error.detail, errors=(error,))


def _stands_for_nothing(pointer: str) -> FieldError:
    return FieldError(
        pointer,
        f"Expected a secret, got {HIDDEN}, which only stands for one, and none is stored: send the value itself",
    )
