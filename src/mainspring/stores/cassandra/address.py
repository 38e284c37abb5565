"""What a store URL says: `cassandra://user:password@host:port,host/keyspace?replication=3`.

| option | |
|---|---|
| `replication` | copies of every row, for a keyspace that has to be created; one that exists keeps its own |
| `consistency` | `quorum` (the default), or `local_quorum` when all instances run in one datacenter |
| `datacenter` | the datacenter to talk to; needed with `local_quorum` |
| `tls` | `true` for TLS with the machine's certificate authorities |
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from mainspring.errors import ConfigError

_PORT: Final = 9042
_OPTIONS: Final = ("replication", "consistency", "datacenter", "tls")
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_EXPECTED: Final = "Expected cassandra://host:port/keyspace?replication=3"


class Address(Struct, frozen=True, kw_only=True):
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    replication: int | None = None
    local: bool = False
    """Whether a quorum of the local datacenter is enough."""
    datacenter: str = ""
    tls: bool = False
    user: str = ""
    password: str = ""


def address_from_url(url: str) -> Address:
    """Never repeats the URL in an error: it may hold a password."""
    parts = urlsplit(url)
    credentials, _, places = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    hosts, port = _hosts(places)
    keyspace = parts.path.removeprefix("/")
    if not _KEYSPACE.fullmatch(keyspace):
        raise ConfigError(f"{_EXPECTED}, with a keyspace of lower case letters, digits and _, got {keyspace!r}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ConfigError(f"Expected the options {', '.join(_OPTIONS)} in a cassandra:// URL, got {unknown[0]!r}")
    local = _one_of(options, "consistency", "quorum", "local_quorum") == "local_quorum"
    if local and not options.get("datacenter"):
        raise ConfigError("Expected datacenter=… beside consistency=local_quorum in a cassandra:// URL, got none")
    return Address(
        hosts=hosts,
        port=port,
        keyspace=keyspace,
        replication=_replication(options.get("replication")),
        local=local,
        datacenter=options.get("datacenter", ""),
        tls=_one_of(options, "tls", "false", "true") == "true",
        user=unquote(user),
        password=unquote(password),
    )


def _hosts(places: str) -> tuple[tuple[str, ...], int]:
    """All hosts share one port, as the driver requires: the last one given."""
    hosts, port = [], str(_PORT)
    for place in places.split(","):
        host, separator, given = place.rpartition(":")
        if not separator or place.endswith("]"):
            host, given = place, port
        port = given
        hosts.append(host.removeprefix("[").removesuffix("]"))
    if not all(hosts) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{_EXPECTED}, got another host or port: {places!r}")
    return tuple(hosts), int(port)


def _one_of(options: dict[str, str], name: str, *values: str) -> str:
    """The first value is the default."""
    value = options.get(name, values[0])
    if value not in values:
        raise ConfigError(f"Expected {name} to be {' or '.join(values)} in a cassandra:// URL, got {value!r}")
    return value


def _replication(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 100:
        raise ConfigError(f"Expected replication to be a number of copies in a cassandra:// URL, got {text!r}")
    return int(text)
