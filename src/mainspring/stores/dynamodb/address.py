"""What a DynamoDB store URL says: `dynamodb://region/prefix?endpoint=http://127.0.0.1:8000`.

The prefix of the table names is `mainspring` unless it is given. Without an endpoint the region's own is used. An
`https://` endpoint is a private address of the service; an `http://` one is a local server for tests, which is
used without credentials when there are none. Credentials come from the usual AWS sources, never from the URL.
"""

from __future__ import annotations

import re

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.stores.addresses import split_url

_FORM = "dynamodb://region/prefix?endpoint=http://host:port"
_REGION = re.compile(r"[a-z0-9-]{2,40}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class Address(Struct, frozen=True):
    """Where the tables are."""

    region: str
    prefix: str
    endpoint: str | None

    @property
    def is_local(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")

    @property
    def timers(self) -> str:
        return f"{self.prefix}-timers"

    @property
    def history(self) -> str:
        return f"{self.prefix}-history"

    @property
    def records(self) -> str:
        return f"{self.prefix}-records"

    def __str__(self) -> str:
        return f"dynamodb://{self.region}/{self.prefix}"


def address_from_url(url: str) -> Address:
    parts, options = split_url(url, _FORM)
    prefix = parts.path.removeprefix("/") or "mainspring"
    if "@" in parts.netloc:
        raise ConfigError(f"Expected {_FORM} without credentials: they come from the usual AWS sources")
    if not _REGION.fullmatch(parts.netloc) or not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"Expected {_FORM}, got another region or prefix")
    endpoint = options.pop("endpoint", None)
    if options:
        raise ConfigError(f"Expected no option but endpoint in a DynamoDB store URL, got {', '.join(sorted(options))}")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError("Expected an endpoint that starts with http:// or https://, got another")
    return Address(parts.netloc, prefix, endpoint)
