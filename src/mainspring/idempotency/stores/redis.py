"""Claims in Redis or Valkey. A claim is one round trip, whether it finds a record or writes one.

The records are those of `mainspring.stores.redis`, which serves event loops. They are as durable as the server's
`appendonly` and `appendfsync` make them: a server that forgets a claim lets the work run again.
"""

from __future__ import annotations

import time
from collections import deque
from hashlib import sha1
from threading import BoundedSemaphore
from typing import Any, Final

from redis import Connection, SSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from mainspring.errors import StoreUnavailable
from mainspring.idempotency.claims import StoreClock
from mainspring.idempotency.entries import COLLECTION, NOTES
from mainspring.idempotency.stores.process import Process
from mainspring.model import Record
from mainspring.stores.redis import scripts
from mainspring.stores.redis.address import Address

CONNECTIONS: Final = 64
DEADLINE_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 1.0

Argument = str | bytes | int


# The same records as the store's scripts write, in fewer steps: nobody else writes this collection, and the expiry, by
# the server's own clock, is always still to come. KEYS: value, hash. ARGV: now, value, version.
_CLAIM_TEXT: Final = f"""
local value = redis.call('GET', KEYS[1])
if value then
  local kept = redis.call('HMGET', KEYS[2], 'version', 'expires_at')
  if not kept[2] or tonumber(kept[2]) > tonumber(ARGV[1]) then return {{kept[1] or '0', value, kept[2]}} end
end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'version', ARGV[3], 'digest', redis.sha1hex(ARGV[2]), 'collection', '{COLLECTION}')
return 1
"""

# ARGV: now, value, expected version, expiry or '', version to be written.
_REPLACE_TEXT: Final = """
local kept = redis.call('HMGET', KEYS[2], 'version', 'expires_at')
if kept[1] ~= ARGV[3] or (kept[2] and tonumber(kept[2]) <= tonumber(ARGV[1])) then return 0 end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local version, digest = ARGV[5], redis.sha1hex(ARGV[2])
if ARGV[4] == '' then
  redis.call('SET', KEYS[1], ARGV[2])
  redis.call('HSET', KEYS[2], 'version', version, 'digest', digest)
else
  redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[4])
  redis.call('HSET', KEYS[2], 'version', version, 'digest', digest, 'expires_at', ARGV[4])
  redis.call('PEXPIREAT', KEYS[2], ARGV[4])
end
return 1
"""


class _Script:
    """A script, and the name that the server knows it by once it is loaded."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


_CLAIM: Final = _Script(_CLAIM_TEXT)
_REPLACE: Final = _Script(_REPLACE_TEXT)
_GET: Final = _Script(scripts.GET)
_DELETE: Final = _Script(scripts.DELETE)
_PUT: Final = _Script(scripts.PUT)
_SCAN: Final = _Script(scripts.SCAN)
_ALL: Final = (_CLAIM, _REPLACE, _GET, _DELETE, _PUT, _SCAN)
_SCAN_STEP: Final = 50


class _Connections:
    """At most `CONNECTIONS`, made when they are needed; the one used last comes first.

    Leaner than the library's pool, which checks before every use whether the server has closed a connection: here only
    those that were idle for a while are checked. A connection that was cut off reconnects by itself.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: deque[tuple[Any, float]] = deque()
        self._free = BoundedSemaphore(CONNECTIONS)

    def take(self) -> Any:
        if not self._free.acquire(timeout=DEADLINE_SECONDS):
            raise TimeoutError(f"all {CONNECTIONS} connections are in use")
        try:
            connection, used_at = self._idle.pop()
        except IndexError:
            return self._new()
        if time.monotonic() - used_at > IDLE_SECONDS and _has_ended(connection):
            connection.disconnect()
        return connection

    def give_back(self, connection: Any) -> None:
        self._idle.append((connection, time.monotonic()))
        self._free.release()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].disconnect()

    def _new(self) -> Any:
        kind: Any = SSLConnection if self._address.tls else Connection
        return kind(
            host=self._address.host,
            port=self._address.port,
            db=self._address.database,
            username=self._address.username,
            password=self._address.password,
            socket_timeout=DEADLINE_SECONDS,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )


def _has_ended(connection: Any) -> bool:
    """Nothing is expected from the server, so whatever there is to read is its farewell."""
    try:
        return bool(connection.can_read())
    except (RedisError, OSError):
        return True


class RedisClaims:
    """The verbs for threads, each one round trip. Connections are made when they are needed, and kept."""

    looks_first = False

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clock = StoreClock()
        self._connections = _Connections(address)
        self._process = Process()

    async def time(self) -> int:
        if not self._clock.is_stale:
            return self._clock.now_ms()
        return await self._clock.ask(self._server_time)

    async def _server_time(self) -> int:
        seconds, microseconds = self._exchange(("TIME",))
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def claim(self, address: str, value: bytes, *, version: int, now: int) -> Record | None:
        found = self._answer(_CLAIM, *self._keys(address), now, value, version)
        return None if found == 1 else _record(address, found)

    async def look(self, address: str, *, now: int) -> Record | None:
        found = self._answer(_GET, *self._keys(address), "", COLLECTION, address, now)
        return None if found is None else _record(address, found)

    async def replace(self, address: str, value: bytes, *, expect: int, now: int, expires_at: int | None) -> bool:
        expiry = "" if expires_at is None else expires_at
        return bool(self._answer(_REPLACE, *self._keys(address), now, value, expect, expiry, expect + 1))

    async def remove(self, address: str, *, expect: int, now: int) -> bool:
        return bool(self._answer(_DELETE, *self._keys(address), "", COLLECTION, address, now, expect))

    async def note(self, address: str, value: bytes, *, now: int) -> None:
        self._answer(_PUT, *self._note_keys(address), NOTES, address, now, 0, value, "", 1)

    async def notes(self, *, after: str, limit: int, now: int) -> list[Record]:
        records: list[Record] = []
        last = after.encode()
        while len(records) < limit:
            step = min(_SCAN_STEP, limit - len(records))
            last, found = self._answer(_SCAN, *self._note_keys(""), NOTES, now, b"(" + last, step)
            records += [_record(address.decode(), row) for address, *row in found]
            if last is None:
                break
        return records

    async def strike(self, note: Record, *, now: int) -> None:
        self._answer(_DELETE, *self._note_keys(note.key), NOTES, note.key, now, note.version)

    def close(self) -> None:
        if not self._process.is_another:
            self._connections.close()
            self._process.leave()

    def _keys(self, address: str) -> tuple[str, str]:
        """The keys of the value and its hash, named as in `mainspring.stores.redis`."""
        prefix = self._address.prefix
        return f"{prefix}{COLLECTION}:{address}", f"{prefix}mainspring:version:{COLLECTION}:{address}"

    def _note_keys(self, address: str) -> tuple[str, str, str]:
        own = f"{self._address.prefix}mainspring:"
        return f"{self._address.prefix}{NOTES}:{address}", f"{own}version:{NOTES}:{address}", f"{own}index:{NOTES}"

    def _answer(self, script: _Script, *arguments: Argument) -> Any:
        keys = 2 if script in (_CLAIM, _REPLACE) else 3
        command = ("EVALSHA", script.digest, keys, *arguments)
        try:
            return self._exchange(command)
        except _NotLoaded:  # so it was not run, either
            for each in _ALL:
                self._exchange(("SCRIPT", "LOAD", each.text))
            return self._exchange(command)

    def _exchange(self, command: tuple[Argument, ...]) -> Any:
        """Nothing is sent twice: after a lost answer the outcome is unknown."""
        self._process.enter()
        try:
            connection = self._connections.take()
            try:
                connection.send_packed_command(connection.pack_command(*command), check_health=False)
                return connection.read_response()
            except ResponseError:
                raise  # an error from the server itself: the connection is fine
            except BaseException:
                connection.disconnect()  # whatever may still arrive is not the answer to the next command
                raise
            finally:
                self._connections.give_back(connection)
        except NoScriptError as error:
            raise _NotLoaded from error
        except (RedisError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise StoreUnavailable(f"Expected to use {self._address}, got: {reason}") from error


class _NotLoaded(Exception):
    """The server does not know the script (not yet, or no longer)."""


def _record(address: str, found: list[Any]) -> Record:
    version, value, *expiry = found
    return Record(address, value, int(version), int(expiry[0]) if expiry and expiry[0] is not None else None)
