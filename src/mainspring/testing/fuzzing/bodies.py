"""JSON at every operation of the API: the real decoding, checks and services, on a store in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from mainspring.delivery.call import Call
from mainspring.testing.attacks.witness import resident_bytes
from mainspring.testing.fake_client import TOKEN, URL, FakeMainspring
from mainspring.testing.fuzzing.campaign import Broken
from mainspring.testing.fuzzing.mutations import mutated

_FRESH_CASES: Final = 500
"""How many cases see the same store, so that it does not grow for ever."""
_WAITING: Final = (b"/v1/namespaces/reshard", b"/v1/namespaces/delete")
"""They answer when a few seconds have passed. Clients leave after a moment: nobody has to wait so often."""
_MOMENT_SECONDS: Final = 0.02
_TOKENS: Final = (b'"', b"\\u0000", b"\\ud800", b"null", b"1e999", b"-0", b"[[[[", b"{}", b'"a":1,', b"\\", b"9" * 25)
_DEEP: Final[Any] = [[[[[[[[{}]]]]]]]]
_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    -0.0,
    1e308,
    5e-324,
    2**53,
    2**63 - 1,
    -(2**63),
    2**64,
    "",
    "x",
    " ",
    "\x00",
    "\u202e",
    "\U0001f600" * 300,
    "x" * 3_000,
    "default",
    "9999-12-31T23:59:59.999Z",
    "0001-01-01T00:00:00+23:59",
    "2026-02-30T00:00:00Z",
    "http://[::1",
    "https://user:secret@example.com/#x",
    "http://0x7f.1/",
    "* * * * *",
    "Europe/Berlin",
    [],
    {},
    [None],
    {"": None},
    _DEEP,
)


class BodiesTarget:
    """Answers with 2xx or 4xx, whatever the body."""

    name = "bodies"
    at_once = 1

    def __init__(self) -> None:
        self._operations = _operations()
        self._cases = 0
        self._heard = _Heard()

    def draw(self, dice: random.Random) -> bytes:
        path = dice.choice(sorted(self._operations))
        message = msgspec.json.decode(self._operations[path])
        for _ in range(dice.choice((0, 0, 1, 1, 1, 2, 3))):
            message = _changed(dice, message)
        body = json.dumps(message, ensure_ascii=dice.random() < 0.5).encode()
        if dice.random() < 0.3:
            body = mutated(dice, body, _TOKENS)
        return path.encode() + b"\n" + body

    async def run(self, case: bytes) -> float:
        if self._cases % _FRESH_CASES == 0:
            self._fake = await FakeMainspring.start()
        self._cases += 1
        path, _, body = case.partition(b"\n")
        headers = (("content-type", "application/json"), ("authorization", f"Bearer {TOKEN}"))
        began = time.process_time()
        try:
            async with asyncio.timeout(_MOMENT_SECONDS if path in _WAITING else None):
                reply = await self._fake.send(Call("POST", URL + path.decode(), headers, body, 1000))
        except TimeoutError:
            return time.process_time() - began
        seconds = time.process_time() - began
        if reply.status is None or reply.status >= 500:
            raise Broken(f"{path.decode()} was answered with {reply.status}: {reply.body!r} {self._heard.take()}")
        msgspec.json.decode(reply.body)
        return seconds

    async def check(self) -> None:
        if told := self._heard.take():
            raise Broken(told)

    def resident_bytes(self) -> int:
        return resident_bytes(os.getpid())

    async def __aenter__(self) -> Self:
        self._logger = logging.getLogger("mainspring")
        self._logger.addHandler(self._heard)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self._heard)


class _Heard(logging.Handler):
    """What was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(logging.Formatter().format(record)[-2000:])

    def take(self) -> str:
        told, self._told = "; ".join(self._told), []
        return told


def _operations() -> dict[str, bytes]:
    """An example of a request for every path that takes one."""
    document = FakeMainspring().openapi()
    return {
        path: msgspec.json.encode(methods["post"]["requestBody"]["content"]["application/json"]["example"])
        for path, methods in document["paths"].items()
        if "post" in methods
    }


def _changed(dice: random.Random, value: Any) -> Any:
    """The same with one thing changed, anywhere in it."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        kind = dice.random()
        if kind < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if kind < 0.15:
            return value | {dice.choice(("unknown", "", "x" * 300, "a/b~c")): dice.choice(_VALUES)}
        return value | {key: _changed(dice, value[key])}
    if isinstance(value, list) and value and dice.random() < 0.8:
        at = dice.randrange(len(value))
        if dice.random() < 0.2:
            return value * dice.choice((0, 2, 50, 1_100))
        return [*value[:at], _changed(dice, value[at]), *value[at + 1 :]]
    return dice.choice(_VALUES)
