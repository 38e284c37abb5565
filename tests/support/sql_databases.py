"""The two database servers behind the SQL stores, as one kind of thing for tests that are the same for both."""

from __future__ import annotations

from mainspring.stores.sql.address import parse_address
from mainspring.stores.sql.dialect import Driver, Session
from mainspring.stores.sql.mysql import MySQLDriver, mysql_store
from mainspring.stores.sql.postgresql import PostgreSQLDriver, postgresql_store
from mainspring.stores.sql.schema import Names
from mainspring.stores.sql.statements import Statements
from mainspring.stores.sql.store import SqlStore

SERVERS = ("postgresql", "mysql")
OPTIONS = ("prefix", "schema")


class Database:
    """An empty database, by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        address = parse_address(url, port=0, options=OPTIONS)
        self.driver: Driver = PostgreSQLDriver(address) if address.scheme == "postgresql" else MySQLDriver(address)
        self.statements = Statements(self.driver.dialect, Names())

    def store(self, url: str = "") -> SqlStore:
        """A store that is not open yet: another process, as far as the database can tell."""
        url = url or self.url
        return postgresql_store(url) if url.startswith("postgresql:") else mysql_store(url)

    async def connect(self) -> Session:
        return await self.driver.connect()

    async def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements; the rows of the last one."""
        session = await self.connect()
        try:
            for statement in statements[:-1]:
                await session.execute(statement, ())
            return [tuple(row) for row in await session.fetch(statements[-1], ())]
        finally:
            await session.close()
