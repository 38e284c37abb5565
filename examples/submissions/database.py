"""Where submissions end: one row each, told apart by who is insured against what.

Looking for a similar one and writing is one transaction. Otherwise two consumers could each look, find nothing, and
write: the classic check-then-act.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import NamedTuple

from .similarity import is_similar, normalised
from .submission import Submission

SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY, broker TEXT NOT NULL, insured TEXT NOT NULL, name TEXT NOT NULL, country TEXT NOT NULL,
    line TEXT NOT NULL, sum_insured INTEGER NOT NULL, price INTEGER
);
CREATE INDEX IF NOT EXISTS submissions_by_place ON submissions (country, line);
"""


class Stored(NamedTuple):
    id: int
    broker: str
    insured: str
    sum_insured: int
    price: int | None

    def is_of(self, submission: Submission) -> bool:
        """Whether it is this very submission, not merely one like it."""
        return (self.broker, self.insured, self.sum_insured) == (
            submission.broker,
            submission.insured,
            submission.sum_insured,
        )


class Database:
    """Each call has a connection of its own, so that any thread may make it."""

    def __init__(self, path: str) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.executescript(SCHEMA)

    def similar(self, submission: Submission) -> Stored | None:
        with closing(self._connect()) as connection:
            return _similar(connection, submission)

    def store(self, submission: Submission, price: int | None) -> Stored:
        """The row of this submission with its price, or the row of a similar one that was faster."""
        with closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            present = _similar(connection, submission)
            if present is None:
                row = (
                    submission.broker,
                    submission.insured,
                    normalised(submission.insured),
                    submission.country,
                    submission.line,
                    submission.sum_insured,
                    price,
                )
                columns = "broker, insured, name, country, line, sum_insured, price"
                connection.execute(f"INSERT INTO submissions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
            elif present.is_of(submission) and present.price is None:
                connection.execute("UPDATE submissions SET price = ? WHERE id = ?", (price, present.id))
            stored = _similar(connection, submission)
        assert stored is not None
        return stored

    def all(self) -> list[Stored]:
        with closing(self._connect()) as connection:
            rows = connection.execute("SELECT id, broker, insured, sum_insured, price FROM submissions ORDER BY id")
            return [Stored(*row) for row in rows]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10, isolation_level=None)


def _similar(connection: sqlite3.Connection, submission: Submission) -> Stored | None:
    """The first row of the same place and line with a similar name."""
    name = normalised(submission.insured)
    rows = connection.execute(
        "SELECT name, id, broker, insured, sum_insured, price FROM submissions "
        "WHERE country = ? AND line = ? ORDER BY id",
        (submission.country, submission.line),
    )
    return next((Stored(*row) for other, *row in rows if is_similar(name, other)), None)
