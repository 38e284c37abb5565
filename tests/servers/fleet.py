"""The servers of one test run: each is started when the first test needs it, and all end with the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from tests.servers.catalogue import SERVERS
from tests.servers.server import Server
from tests.servers.sources import Unobtainable

S = TypeVar("S", bound=Server)
T = TypeVar("T")

_AT_ONCE = 3


class Fleet:
    """Knows the servers that the run will need: the first use of one starts them all, side by side."""

    def __init__(self, names: Iterable[str]) -> None:
        self._needed = [kind for name, kind in SERVERS.items() if name in set(names)]
        self._servers: list[Server] = []
        self._starts: dict[type[Server], Future[Server]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="servers")
        self.missing: dict[str, str] = {}
        """Why servers could not be obtained, by name."""

    def get(self, kind: type[S]) -> S:
        """The running server of this kind, shared by all tests; skips the test if there is none to be had."""
        if kind not in self._starts:
            kinds: list[type[Server]] = [kind, *self._needed]
            for each in dict.fromkeys(kinds):
                self._starts[each] = self._pool.submit(self._start, each)
        server = self._or_skip(kind, self._starts[kind].result)
        assert isinstance(server, kind)
        return server

    def start(self, kind: type[S]) -> S:
        """Another server of this kind, the caller's own; ended with the run at the latest."""
        return self._or_skip(kind, lambda: self._start(kind))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for server in self._servers:
            server.close()

    def _start(self, kind: type[S]) -> S:
        server = kind()
        self._servers.append(server)
        server.obtain()
        return server.start()

    def _or_skip(self, kind: type[Server], get: Callable[[], T]) -> T:
        try:
            return get()
        except Unobtainable as error:
            self.missing[kind.name] = str(error)
            pytest.skip(f"{kind.name}: {error}")
