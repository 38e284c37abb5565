"""A database that Mainspring has never used."""

from __future__ import annotations

import sqlite3

import apsw
import pytest
import sqlalchemy

from mainspring.errors import ConfigError
from mainspring.transactional import TimerWriter
from mainspring.transactional.connections import BlockingConnection
from mainspring.transactional.dialects import MYSQL
from mainspring.transactional.statements import Steps


def test_a_file_without_our_tables_is_named_as_such_whatever_connects_to_it() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as alchemy:
        for connection in (sqlite3.connect(":memory:"), apsw.Connection(":memory:"), alchemy):
            if isinstance(connection, apsw.Connection):
                connection.execute("BEGIN")
            with pytest.raises(ConfigError, match=r"database without tables of Mainspring.*mainspring admin migrate"):
                TimerWriter(namespace="shop").create(
                    connection, "t", delay_seconds=1, callback_url="https://example.com/"
                )


@pytest.mark.parametrize(
    "text",
    [
        'relation "mainspring_records" does not exist',
        "(1146, \"Table 'shop.mainspring_records' doesn't exist\")",
    ],
)
def test_servers_say_it_in_their_own_words(text: str) -> None:
    def fail(*_: object) -> list[tuple[object, ...]]:
        raise RuntimeError(text)

    connection = BlockingConnection(dialect=MYSQL, driver="any", placeholder="%s", run=fail)
    with pytest.raises(ConfigError, match="database without tables of Mainspring"):
        connection.drive(steps())


def steps() -> Steps[None]:
    yield MYSQL.namespace("mainspring_", "shop")


def test_other_errors_of_a_connection_pass_unchanged() -> None:
    def fail(*_: object) -> list[tuple[object, ...]]:
        raise RuntimeError("deadlock")

    with pytest.raises(RuntimeError, match="deadlock"):
        BlockingConnection(dialect=MYSQL, driver="any", placeholder="%s", run=fail).drive(steps())
