"""How the client is set up, what it reads and writes, and which of its errors mean what. The only place that knows.

Nothing is tried twice: after an error the outcome is unknown, and the caller reads the state again. The one
exception is in the driver: it repeats a commit whose answer was lost, and the server answers from its record of the
transaction. The driver finds the servers again by itself, in the background, as soon as they are back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from mainspring.errors import ConfigError, StoreUnavailable

SECONDS: Final = 3.0
"""How long a call may take, including connecting and waiting for locks. Well below the lease of an owner."""
POOL_SIZE: Final = 32

Document = dict[str, Any]
Collection = AsyncCollection[Document]
Client = AsyncMongoClient[Document]

TOO_LARGE: Final = frozenset({2, 10334, 17280, 17419, 17420})
"""The servers' codes for a document that is too large, or would be after an update. An insert gets 2."""
_AUTHENTICATION_FAILED: Final = 18
_UNAUTHORIZED: Final = 13
_OLDEST_WIRE_VERSION: Final = 13  # MongoDB 5.0, the first with snapshot reads outside of transactions


class Collections(NamedTuple):
    timers: Collection
    shards: Collection
    history: Collection
    records: Collection
    schema: Collection


def database_name(url: str) -> str:
    """The database that the URL names, which is required."""
    try:
        name = urlsplit(url).path.strip("/")
    except ValueError:
        name = ""
    if not name or "/" in name:
        # No part of the URL is repeated: any of them may be a piece of a password that is not percent-encoded.
        raise ConfigError("Expected mongodb://host:port/database?replicaSet=name, got a URL that names no database")
    return name


def make_client(url: str) -> Client:
    """A client that has not connected yet. Settings that the store's promises rest on override those in the URL."""
    try:
        with warnings.catch_warnings(action="error", category=UserWarning):  # about options that it would ignore
            return _client(url)
    except (InvalidURI, ConfigurationError, UserWarning, ValueError) as error:
        # What the driver says may hold a piece of a password with an unescaped character in it.
        reason = "one with credentials that are not percent-encoded, or a wrong option" if "@" in url else str(error)
        raise ConfigError(f"Expected mongodb://host:port/database?replicaSet=name, got: {reason}") from None


def _client(url: str) -> Client:
    return AsyncMongoClient(
        url,
        appname="mainspring",
        w="majority",
        readConcernLevel="majority",
        readPreference="primary",
        retryWrites=False,
        retryReads=False,
        maxPoolSize=POOL_SIZE,
        timeoutMS=int(SECONDS * 1000),
        connectTimeoutMS=int(SECONDS * 1000),
    )


def collections_of(client: Client, database: str) -> Collections:
    # Instants that the server compares with its clock are BSON dates. Dates in Python end with the year 9999:
    # here they stay milliseconds.
    options: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    found = client.get_database(database, codec_options=options, read_preference=ReadPreference.PRIMARY)
    return Collections(*(found[f"mainspring_{name}"] for name in Collections._fields))


async def check_server(client: Client) -> None:
    """Refuse a server that cannot keep the contract."""
    hello = await client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise ConfigError("Expected a MongoDB replica set, which transactions need, got a standalone server")
    if hello["maxWireVersion"] < _OLDEST_WIRE_VERSION:
        raise ConfigError("Expected MongoDB 5.0 or newer, got an older server")


@contextmanager
def mapping_errors(*, at_start: bool = False) -> Iterator[None]:
    """`at_start`: being refused means a wrong configuration. Later on, rights that were lost can come back."""
    try:
        yield
    except ServerSelectionTimeoutError as error:
        raise StoreUnavailable(f"No MongoDB primary answers: {error}") from error
    except OperationFailure as error:
        if at_start and error.code in (_AUTHENTICATION_FAILED, _UNAUTHORIZED):
            raise ConfigError(f"MongoDB rejects this user, or does not permit this: {_reason(error)}") from error
        raise StoreUnavailable(f"MongoDB could not do this: {_reason(error)}") from error
    except PyMongoError as error:
        raise StoreUnavailable(f"MongoDB does not answer: {error}") from error


def unavailable(error: PyMongoError) -> StoreUnavailable:
    """The same, as a value."""
    try:
        with mapping_errors():
            raise error
    except StoreUnavailable as mapped:
        return mapped


def _reason(error: OperationFailure) -> str:
    """What the server says, without the documents that some of its answers repeat."""
    if isinstance(error, BulkWriteError):
        details = error.details
        reasons = [str(part.get("errmsg")) for part in (*details["writeErrors"], *details["writeConcernErrors"])]
        return reasons[0] if reasons else "a failed batch"
    answer = error.details or {}
    message, _, _ = str(answer.get("errmsg", "")).partition(" command {")
    return f"{answer.get('codeName', error.code)}, {message}"
