"""Calls to Redis: one pool, a deadline for each call, and the one place where its errors are mapped.

Nothing is sent twice: the library's own retries are off, because after a lost answer the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.stores.redis.address import Address

T = TypeVar("T")

CONNECTIONS: Final = 64
DEADLINE_SECONDS: Final = 3.0


class Client:
    """A pool whose connections are made when they are needed, so a server that returns is found again."""

    def __init__(self, address: Address) -> None:
        self.address = address
        pool = BlockingConnectionPool(
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
        self.redis: Redis = Redis.from_pool(pool)

    async def check(self) -> None:
        """Reach the server once, so that a wrong address or password is reported at the start."""
        try:
            await self.answer(self.redis.ping())
        except StoreUnavailable as error:
            if isinstance(error.__cause__, AuthenticationError | AuthorizationError | NoPermissionError):
                raise ConfigError(
                    f"Expected credentials that may use {self.address}, got: {error.__cause__}"
                ) from error
            raise

    async def close(self) -> None:
        await self.redis.aclose()

    async def answer(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await call
        except (RedisError, OSError) as error:  # a TimeoutError is an OSError
            reason = str(error) or type(error).__name__
            raise StoreUnavailable(f"Expected to use {self.address}, got: {reason}") from error
