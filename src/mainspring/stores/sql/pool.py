"""Connections that are kept for the next use, and the one place where a failed one is discarded.

The pool itself opens as many as are asked for at once; how many that can be is bounded by those who ask, the committers
and the reads of the store. A session that was in use when anything went wrong, a cancellation included, is never used
again. So the store needs no repair: the next call opens a new connection.

Refused credentials and missing rights are a matter of configuration while a store is opened or migrated. Later on they
are a passing state of the server like any other: whoever took a right away can give it back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mainspring import crashpoint
from mainspring.errors import ConfigError, MainspringError, StoreUnavailable
from mainspring.stores.sql.dialect import Driver, Session, Undone

CALL_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 4.0


class Pool:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._idle: deque[tuple[Session, float]] = deque()
        """The one used last at the right end."""

    @asynccontextmanager
    async def session(self, *, seconds: float = CALL_SECONDS, at_start: bool = False) -> AsyncIterator[Session]:
        """`at_start`: a refusal by the server is a `ConfigError`."""
        session = await self._take()
        try:
            async with asyncio.timeout(seconds):
                yield session
        except BaseException as error:
            meaning = error if isinstance(error, Undone) else self._meaning(error, at_start=at_start)
            if isinstance(meaning, Undone):
                await self._give_back_after_rollback(session)
                raise meaning from error
            lost = not session.is_usable
            session.terminate()
            if lost:
                self._drop_all()
            if meaning is None:
                raise
            raise meaning from error
        self._give_back(session)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self.session() as session:
            await session.begin()
            yield session
            crashpoint.reach(crashpoint.BEFORE_COMMIT)
            await session.commit()
            crashpoint.reach(crashpoint.AFTER_COMMIT)

    async def check(self) -> None:
        """Have a session ready for the next call. Raises `ConfigError` if the server refuses us or our database."""
        self._give_back(await self._connect())

    async def _connect(self) -> Session:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._driver.connect()
        except Exception as error:
            meaning = self._meaning(error, at_start=True)
            if meaning is None:
                raise
            raise meaning from error

    def _meaning(self, error: BaseException, *, at_start: bool) -> MainspringError | Undone | None:
        meaning = self._driver.translate(error)
        if isinstance(meaning, ConfigError) and not at_start:
            return StoreUnavailable(meaning.detail)
        return meaning

    async def close(self) -> None:
        while self._idle:
            session, _ = self._idle.pop()
            await self._close_one(session)

    async def _take(self) -> Session:
        now = asyncio.get_running_loop().time()
        while self._idle and self._idle[0][1] + self._driver.idle_seconds < now:
            self._idle.popleft()[0].terminate()
        while self._idle:
            session, _ = self._idle.pop()
            if session.is_usable:
                return session
            session.terminate()
        try:
            return await self._connect()
        except ConfigError as error:  # it was right when the store was opened
            raise StoreUnavailable(error.detail) from error

    def _give_back(self, session: Session) -> None:
        self._idle.append((session, asyncio.get_running_loop().time()))

    async def _give_back_after_rollback(self, session: Session) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await session.rollback()
        except BaseException as error:
            session.terminate()
            meaning = self._meaning(error, at_start=False)
            if meaning is None:
                raise
            raise meaning from error
        self._give_back(session)

    def _drop_all(self) -> None:
        """One connection was lost: the others probably are, too, and some may not know it yet."""
        while self._idle:
            self._idle.pop()[0].terminate()

    async def _close_one(self, session: Session) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await session.close()
        except Exception as error:
            session.terminate()
            if self._driver.translate(error) is None:
                raise
