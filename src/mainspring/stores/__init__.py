"""Which database stands behind a store URL. Adapters are imported when they are asked for, so that a program at its
start pays only for the one it uses. What they share:

    addresses        the URLs of servers, taken apart
    groups           requests, and which of those that wait are worked on together
    committer        group commit: what arrives while a group is under way becomes the next group
    rules            what a change, a begin or a finish does to a row
    plan             what a group of requests does: decided in order, without SQL
    pages            how many rows make up a page
    sizes            how large rows are
    partial_results  batches that failed in part
    containment      which errors leave a store
    collections      collections of records that are only looked up

The adapters:

    memory           in this process, for tests and trials
    sqlite/          one file
    sql/             PostgreSQL, MySQL and MariaDB
    mongodb/         a replica set
    cassandra/       Cassandra and Scylla
    dynamodb/        tables of AWS
    redis/           records only
"""

# ruff: noqa: PLC0415  (see the docstring)

from __future__ import annotations

import re
from typing import Final

from mainspring.clock import Clock
from mainspring.errors import ConfigError
from mainspring.store import Store
from mainspring.text import shown_url

_EXTRAS: Final = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mongodb": "mongodb",
    "mongodb+srv": "mongodb",
    "cassandra": "cassandra",
    "dynamodb": "dynamodb",
    "redis": "redis",
    "rediss": "redis",
}
"""The scheme of a server's URL, and the extra of the package that its library comes with."""
_MISTAKEN: Final = {"postgres": "postgresql", "mariadb": "mysql"}
"""Other programs' names for our schemes."""


def store_from_url(url: str, *, clock: Clock) -> Store:
    """The store that `url` names, not yet opened:

    sqlite:///relative.db  sqlite:////absolute.db  memory://
    postgresql://  mysql://  mongodb://  mongodb+srv://  cassandra://  dynamodb://
    redis://  rediss://  for records only; see `timer_store_from_url`
    """
    if not isinstance(url, str):
        raise ConfigError(f"Expected a store URL such as sqlite:///app.db, got {url!r:.100}")
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path = rest.removeprefix("/")
        if not rest.startswith("/") or not path:
            raise ConfigError(f"Expected sqlite:///path of a database file, got {shown_url(url)}")
        from mainspring.stores.sqlite import SQLiteStore

        return SQLiteStore(path)
    if separator and scheme == "memory":
        if rest.strip("/"):
            raise ConfigError(f"Expected memory:// without anything behind it, got {shown_url(url)}")
        from mainspring.stores.memory import MemoryStore

        return MemoryStore(clock)
    if separator and scheme in _MISTAKEN:
        raise ConfigError(f"Expected a store URL that starts with {_MISTAKEN[scheme]}://, got {scheme}://")
    extra = _EXTRAS.get(scheme) if separator else None
    if extra is None:
        # Only what can be a scheme is named: what follows it may be a password.
        named = re.match(r"[a-z+]+(?=[:/])", url)
        raise ConfigError(
            f"Expected a store URL that starts with sqlite:///, memory://, {'://, '.join(_EXTRAS)}://, "
            f"got {f'one that starts with {named[0]!r}' if named else 'another'}"
        )
    try:
        return _server_store(extra, url, clock)
    except ModuleNotFoundError as error:
        raise missing_driver(error, extra=extra) from error


def timer_store_from_url(url: str, *, clock: Clock) -> Store:
    """The same, for keeping timers: refuses Redis, whether its library is installed or not."""
    scheme, separator, _ = url.partition("://")
    if separator and _EXTRAS.get(scheme) == "redis":
        raise ConfigError(
            f"Expected a store that keeps timers, got {scheme}://: Redis keeps records only. Give timers a database of "
            "their own"
        )
    return store_from_url(url, clock=clock)


def _server_store(extra: str, url: str, clock: Clock) -> Store:
    match extra:
        case "postgresql":
            from mainspring.stores.sql.postgresql import postgresql_store

            return postgresql_store(url)
        case "mysql":
            from mainspring.stores.sql.mysql import mysql_store

            return mysql_store(url)
        case "mongodb":
            from mainspring.stores.mongodb import MongoDBStore

            return MongoDBStore(url)
        case "cassandra":
            from mainspring.stores.cassandra import CassandraStore

            return CassandraStore(url)
        case "dynamodb":
            from mainspring.stores.dynamodb import dynamodb_store

            return dynamodb_store(url, clock=clock)
        case _:
            from mainspring.stores.redis import redis_store

            return redis_store(url)


def missing_driver(error: ModuleNotFoundError, *, extra: str) -> ConfigError:
    """A store's library is an extra of the package."""
    return ConfigError(f"Expected the library {error.name} to be installed: pip install 'mainspring[{extra}]'")
