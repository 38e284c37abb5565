"""The work: a report of a day, in SQLite. It knows nothing of HTTP or of repeats."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

SCHEMA = """
CREATE TABLE IF NOT EXISTS reports (run TEXT PRIMARY KEY, day TEXT NOT NULL, text TEXT NOT NULL);
"""


class Report(NamedTuple):
    run: str
    day: str
    text: str


class Reports:
    """Each call has a connection of its own, so that any thread may make it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.executescript(SCHEMA)

    def write(self, run: str, at: datetime) -> Report:
        """The report of the day that ends at this instant. A second one for a run is an error: look first."""
        report = Report(run, f"{at:%Y-%m-%d}", f"All was well until {at:%H:%M}.")
        with closing(self._connect()) as connection, connection:
            connection.execute("INSERT INTO reports VALUES (?, ?, ?)", report)
        return report

    def find(self, run: str) -> Report | None:
        with closing(self._connect()) as connection:
            row = connection.execute("SELECT run, day, text FROM reports WHERE run = ?", (run,)).fetchone()
        return None if row is None else Report(*row)

    def all(self) -> list[Report]:
        with closing(self._connect()) as connection:
            return [Report(*row) for row in connection.execute("SELECT run, day, text FROM reports ORDER BY day")]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10)
