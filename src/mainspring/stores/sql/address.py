"""What a store URL says about a database server. Passwords never leave this value except to the driver."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import unquote

from msgspec import Struct

from mainspring.errors import ConfigError
from mainspring.stores.addresses import port_of, split_url

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Address(Struct, frozen=True):
    """`scheme://user:password@host:port/database?option=value`"""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str
    options: Mapping[str, str]

    @property
    def place(self) -> str:
        """For messages: where, without who and without the password."""
        return f"{self.database} at {self.host}:{self.port}"

    def name(self, option: str, default: str = "") -> str:
        """An option that becomes part of SQL names."""
        value = self.options.get(option, default)
        if value and not _NAME.fullmatch(value):
            raise ConfigError(f"Expected {option} to be lower-case letters, digits and _, got {value!r}")
        return value

    def number(self, option: str, default: int) -> int:
        value = self.options.get(option, str(default))
        if not value.isascii() or not value.isdigit() or len(value) > 6:
            raise ConfigError(f"Expected {option} to be a whole number, got {value!r}")
        return int(value)

    def choice(self, option: str, choices: Collection[str], default: str) -> str:
        value = self.options.get(option, default)
        if value not in choices:
            raise ConfigError(f"Expected {option} to be one of {', '.join(choices)}, got {value!r}")
        return value


def parse_address(url: str, *, port: int, options: Collection[str]) -> Address:
    """Only the given options are known."""
    scheme, _, _ = url.partition("://")
    form = f"{scheme}://user:password@host:port/database"
    parts, given = split_url(url, form)
    unknown = sorted(set(given) - set(options))
    if unknown:
        raise ConfigError(f"Expected only the options {', '.join(sorted(options))}, got {', '.join(unknown)}")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise ConfigError(f"Expected {form}, got no name of a database")
    return Address(
        scheme=parts.scheme,
        host=given.get("host") or parts.hostname or "127.0.0.1",
        port=port_of(parts, port, form),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        options=given,
    )
