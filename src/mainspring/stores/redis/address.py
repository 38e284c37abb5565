"""What a Redis store URL says: `redis://user:password@host:port/database?prefix=text`, or `rediss://` for TLS."""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.stores.addresses import port_of, split_url

_FORM = "redis://host:port/database?prefix=text"


class Address(Struct, frozen=True):
    """Where the records are. `prefix` precedes every key."""

    host: str
    port: int
    database: int
    prefix: str
    tls: bool
    username: str | None
    password: str | None

    def __str__(self) -> str:
        """Without the password."""
        return f"{'rediss' if self.tls else 'redis'}://{self.host}:{self.port}/{self.database}"


def address_from_url(url: str) -> Address:
    parts, options = split_url(url, _FORM)
    database = parts.path.removeprefix("/") or "0"
    prefix = options.pop("prefix", "")
    if not parts.hostname or not (database.isascii() and database.isdigit()):
        raise ConfigError(f"Expected {_FORM}, got another form")
    if options:
        raise ConfigError(f"Expected no option but prefix in a Redis store URL, got {', '.join(sorted(options))}")
    return Address(
        host=parts.hostname,
        port=port_of(parts, 6379, _FORM),
        database=int(database),
        prefix=prefix,
        tls=parts.scheme == "rediss",
        username=None if not parts.username else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )
