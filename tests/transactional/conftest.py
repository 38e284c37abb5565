"""A database of each kind with an engine on it, for the whole run."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from typing import NamedTuple

import pytest

from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

SECONDS = 20
ORDERS = "CREATE TABLE orders (name VARCHAR(100) PRIMARY KEY)"


class Engine:
    """The other process, and what it has said so far."""

    def __init__(self, url: str) -> None:
        self._said: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transactional.engine", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=clean_environment(),
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        self.wait_for("ready")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._said.append(line.strip())
                self._news.notify_all()
        with self._news:
            self._said.append("ended")
            self._news.notify_all()

    def said(self, what: str) -> list[str]:
        with self._news:
            return [line for line in self._said if line.startswith(what)]

    def wait_for(self, what: str, seconds: float = SECONDS) -> str:
        with self._news:
            found = self._news.wait_for(lambda: self.said(what) or "ended" in self._said, seconds)
        lines = self.said(what)
        assert found and lines, f"Expected {what!r} within {seconds} s, got {self._said[-5:]}"  # noqa: PT018
        return lines[0]

    def watch(self, seconds: float) -> None:
        """Give it time to do what it must not do."""
        time.sleep(seconds)
        assert self._process.poll() is None

    def close(self) -> None:
        self._process.communicate("", timeout=SECONDS)
        self._listener.join(SECONDS)
        assert self._process.returncode == 0


class Database(NamedTuple):
    kind: str
    url: str
    engine: Engine

    @property
    def place(self) -> str:
        return self.url.removeprefix("sqlite:///")

    @property
    def tables(self) -> str:
        return "" if self.kind == "sqlite" else "mainspring_"


@pytest.fixture(scope="session")
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Database]]:
    """Each is made when the first test needs it."""
    with ExitStack() as stack:

        @cache
        def get(kind: str) -> Database:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path_factory.mktemp('transactional') / 'app.db'}"
                engine = stack.enter_context(closing(Engine(url)))
                with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                    connection.execute(ORDERS)
            else:
                server = request.getfixturevalue("fleet").get(SERVERS[kind])
                url = server.fresh()
                server.execute(ORDERS, database=url.rpartition("/")[2])
                engine = stack.enter_context(closing(Engine(url)))
            return Database(kind, url, engine)

        yield get


@pytest.fixture(params=["sqlite", *server_params("postgresql", "mysql")])
def database(request: pytest.FixtureRequest, databases: Callable[[str], Database]) -> Database:
    return databases(request.param)
