"""A scripted resolver: the one part of the network that tests cannot have for real."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest


class Resolver:
    """Stands in for the network's DNS: answers each lookup with the next list of addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.lookups = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, host: str, port: int | None, **_: Any) -> list[Any]:
        self.lookups += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in text], socket.SOCK_STREAM, 6, "", (text, port)) for text in answer]
