"""Claims in Redis or Valkey. A claim is one round trip, whether it finds a record or writes one.

The records are those of `mainspring.stores.redis`, written by its scripts. They are as durable as the server's
`appendonly` and `appendfsync` make them: a server that forgets a claim lets the work run again.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Any, Final

from redis import BlockingConnectionPool, Connection, SSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from mainspring.errors import StoreUnavailable
from mainspring.idempotency.claims import ClaimStore, StoreClock
from mainspring.idempotency.entries import COLLECTION
from mainspring.idempotency.stores.records import UrlStore
from mainspring.model import Record
from mainspring.stores.redis import scripts
from mainspring.stores.redis.address import Address, address_from_url

CONNECTIONS: Final = 64
DEADLINE_SECONDS: Final = 3.0

Argument = str | bytes | int
Command = tuple[Argument, ...]


class _Script:
    """A script, and the name that the server knows it by once it is loaded."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


_GET: Final = _Script(scripts.GET)
_PUT: Final = _Script(scripts.PUT)
_DELETE: Final = _Script(scripts.DELETE)


class RedisClaims:
    """The five verbs for threads, each one round trip. Connections are made when they are needed, and kept."""

    looks_first = False

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clock = StoreClock()
        self._pool: Any = BlockingConnectionPool(  # type: ignore[no-untyped-call]
            max_connections=CONNECTIONS,
            timeout=DEADLINE_SECONDS,
            host=address.host,
            port=address.port,
            db=address.database,
            username=address.username,
            password=address.password,
            socket_timeout=DEADLINE_SECONDS,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            connection_class=SSLConnection if address.tls else Connection,
        )

    async def time(self) -> int:
        if not self._clock.is_stale:
            return self._clock.now_ms()
        seconds, microseconds = self._answers(("TIME",))[0]
        return self._clock.align(int(seconds) * 1000 + int(microseconds) // 1000)

    async def claim(self, address: str, value: bytes, *, now: int) -> Record | None:
        while True:
            written, found = self._answers(
                self._command(_PUT, address, now, 0, value, ""), self._command(_GET, address, now)
            )
            if written:
                return None
            if found is not None:
                return _record(address, found)

    async def look(self, address: str, *, now: int) -> Record | None:
        found = self._answers(self._command(_GET, address, now))[0]
        return None if found is None else _record(address, found)

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        expiry = "" if expires_at is None else expires_at
        return bool(self._answers(self._command(_PUT, address, now, expect, value, expiry))[0])

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        return bool(self._answers(self._command(_DELETE, address, now, expect))[0])

    def close(self) -> None:
        self._pool.disconnect()

    def _command(self, script: _Script, address: str, *arguments: Argument) -> Command:
        """The names of keys are those of `RedisStore`; the collection is only looked up, so it has no index."""
        prefix = self._address.prefix
        value_key = f"{prefix}{COLLECTION}:{address}"
        hash_key = f"{prefix}mainspring:version:{COLLECTION}:{address}"
        return ("EVALSHA", script.digest, 3, value_key, hash_key, "", COLLECTION, address, *arguments)

    def _answers(self, *commands: Command) -> list[Any]:
        try:
            answers = self._exchange(commands)
            if any(isinstance(answer, NoScriptError) for answer in answers):  # then none of them was run
                self._exchange(tuple(("SCRIPT", "LOAD", script.text) for script in (_GET, _PUT, _DELETE)))
                answers = self._exchange(commands)
            for answer in answers:
                if isinstance(answer, RedisError):
                    raise answer
        except (RedisError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise StoreUnavailable(f"Expected to use {self._address}, got: {reason}") from error
        return answers

    def _exchange(self, commands: tuple[Command, ...]) -> list[Any]:
        """Send all at once, then read all. Nothing is sent twice: after a lost answer the outcome is unknown."""
        connection = self._pool.get_connection()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            return [_answer(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:  # the server's own words: the connection is fine
        return error


def _record(address: str, found: list[Any]) -> Record:
    version, value, *expiry = found
    return Record(address, value, version, int(expiry[0]) if expiry and expiry[0] is not None else None)


class RedisStore(UrlStore):
    """Claims at `redis://user:password@host:port/database?prefix=text`, or `rediss://` for TLS."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._claims = RedisClaims(address_from_url(url))

    def blocking(self) -> ClaimStore:
        return self._claims

    def close(self) -> None:
        self._claims.close()
        super().close()
