"""A database server as the tests see it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

from mainspring.testing.signals import remove_when_ended
from tests.servers.process import Process, accepts_connections, free_port

_places = itertools.count(1)


def new_place() -> str:
    return f"t{os.getpid()}_{next(_places)}"


class Server(ABC):
    """One server: obtained once per machine, started on a free loopback port with data that is thrown away.

    Data survives `stop`, `kill` and the next `start`, on the same port; `close` removes it.
    """

    name: ClassVar[str]
    """The scheme of its URLs."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable
        """Whether a commit waits for the disk. Tests kill processes, not machines, so they need not pay for it."""
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"mainspring-{self.name}-"))
        remove_when_ended(self.directory)
        self.log = self.directory / "log"
        self._process: Process | None = None
        self._prepared = False

    @abstractmethod
    def obtain(self) -> None:
        """See to it that the server's programs are on this machine, or raise `Unobtainable`."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What runs it in the foreground."""

    @abstractmethod
    def url(self, place: str) -> str:
        """The store URL of a named place: a database, keyspace or prefix."""

    def prepare(self) -> None:
        """Make what the first start needs in `directory`."""
        (self.directory / "data").mkdir()

    def ready(self) -> bool:
        """Whether it answers."""
        return accepts_connections(self.port)

    def fresh(self) -> str:
        """The URL of an empty place that nobody has used."""
        return self.url(new_place())

    def empty(self) -> str:
        """The URL of an empty place, by the cheapest means: ours until somebody asks again."""
        return self.fresh()

    def start(self) -> Self:
        if not self._prepared:
            self.prepare()
            self._prepared = True
        self._process = Process(self.command(), directory=self.directory, log=self.log, user=self.user)
        self._process.wait_until(self.ready)
        return self

    @property
    def user(self) -> str | None:
        """Whom it runs as, when not as ourselves."""
        return None

    @property
    def pid(self) -> int:
        return self._running().pid

    def stop(self) -> None:
        """End it in order."""
        self._running().stop(self.stop_signal)
        self._process = None

    def kill(self) -> None:
        """kill -9."""
        self._running().kill()
        self._process = None

    def pause(self) -> None:
        """Freeze it; `resume` thaws it."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def limit_files(self, size: int | None) -> None:
        """A disk that is full, as far as the server can tell: no file may grow beyond `size` bytes. None: all may."""
        self._running().limit_files(size)

    def close(self) -> None:
        """End it if it runs, and remove its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"Expected {self.name} to run, got one that was not started")
        return self._process
