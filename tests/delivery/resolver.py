"""A scripted resolver: the one part of the network that tests cannot have for real."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import TracebackType
from typing import Any, Self

import pytest


class Resolver:
    """Stands in for the network's DNS: answers each lookup with the next list of addresses.

    Without any list it asks the system. Lookups of names under `dead.example` block their thread until `release`,
    or the end of the `with` block.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.lookups = 0
        self.blocked: list[str] = []
        """The dead names whose lookups are under way."""
        self._closed = False
        self._released = threading.Event()
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.getaddrinfo)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.unexpected)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self.release()

    def release(self) -> None:
        """Let the dead names that are blocked now, and only those, end without an address."""
        released, self._released = self._released, threading.Event()
        released.set()

    def getaddrinfo(self, host: str, port: int | None, **options: Any) -> list[Any]:
        self.lookups += 1
        if host.endswith("dead.example"):
            released = self._released
            self.blocked.append(host)
            if not self._closed:
                released.wait(60)
            self.blocked.remove(host)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if not self.answers:
            return self._system(host, port, **options)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in text], socket.SOCK_STREAM, 6, "", (text, port)) for text in answer]

    async def unexpected(self, host: str, *_: Any, **__: Any) -> list[Any]:
        raise AssertionError(f"a lookup of {host} in the few threads of the event loop")
