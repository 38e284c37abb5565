"""What a Redis store URL says: `redis://user:password@host:port/database?prefix=text`, or `rediss://` for TLS."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from mainspring.errors import ConfigError

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
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        port = parts.port or 6379
    except ValueError as error:
        raise ConfigError(f"Expected {_FORM}, got an address that cannot be read: {error}") from error
    database = parts.path.removeprefix("/") or "0"
    prefix = options.pop("prefix", "")
    if not parts.hostname or not (database.isascii() and database.isdigit()) or parts.fragment:
        raise ConfigError(f"Expected {_FORM}, got another form")
    if options:
        raise ConfigError(f"Expected no option but prefix in a Redis store URL, got {', '.join(sorted(options))}")
    return Address(
        host=parts.hostname,
        port=port,
        database=int(database),
        prefix=prefix,
        tls=parts.scheme == "rediss",
        username=None if not parts.username else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )
