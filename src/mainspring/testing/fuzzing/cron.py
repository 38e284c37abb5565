"""Texts of schedules, and what the resulting calendars say about any instant in any zone."""

from __future__ import annotations

import os
import random
import time
from types import TracebackType
from typing import Final, Literal, Self

from msgspec import Struct, json

from mainspring.errors import InvalidInput
from mainspring.jobs.calendar import zone
from mainspring.jobs.calendar.calendar import Calendar, Dst
from mainspring.jobs.calendar.cron import parse
from mainspring.testing.attacks.witness import resident_bytes
from mainspring.testing.fuzzing.campaign import Broken
from mainspring.testing.fuzzing.mutations import mutated

_NAMES: Final = ("mon", "SUN", "sat", "jan", "Feb", "dec", "L", "LW", "15W", "31W", "1W", "fri#2", "friL", "0#5", "7L")
_WHOLE: Final = ("@hourly", "@daily", "@yearly", "@every 90s", "@every 1d", "@every 0s", "@every 999999999d", "@reboot")
_SPREAD: Final = ("H", "H/15", "H(0-29)", "H(0-29)/10", "H(5-1)", "h(1-1)")
_NUMBERS: Final = (0, 1, 2, 5, 7, 12, 15, 23, 28, 29, 30, 31, 59, 60, 99)
_TOKENS: Final = (b"*", b"/", b"-", b",", b"?", b"#", b"L", b"W", b"H", b"@", b"\xc2\xb2", b"\xd9\xa3", b"99999999999")
_INSTANTS: Final = (0, -1, 1, 951_782_400_000, 253_402_128_000_000, 253_402_300_799_999, 4_107_542_400_000)


class Case(Struct):
    """A question to a calendar."""

    text: str
    zone: str
    at_ms: int
    seconds: bool
    on_gap: Literal["skip", "shift"]
    on_overlap: Literal["first", "last", "both"]


class CronTarget:
    """Refuses with `InvalidInput`, or makes a calendar whose answers are consistent."""

    name = "cron"
    at_once = 1

    def draw(self, dice: random.Random) -> bytes:
        text = _text(dice)
        if dice.random() < 0.4:
            text = mutated(dice, text.encode(), _TOKENS).decode("utf-8", "replace")
        zones = sorted(zone.names())
        case = Case(
            text=text,
            zone=dice.choice(zones) if dice.random() < 0.98 else mutated(dice, b"Europe/Berlin").decode("latin-1"),
            at_ms=dice.choice((dice.choice(_INSTANTS), dice.randrange(4_102_444_800_000))),
            seconds=dice.random() < 0.3,
            on_gap=dice.choice(("skip", "shift")),
            on_overlap=dice.choice(("first", "last", "both")),
        )
        return json.encode(case)

    async def run(self, case: bytes) -> float:
        asked = json.decode(case, type=Case)
        began = time.process_time()
        try:
            schedule = parse(asked.text, job="a job", seconds=asked.seconds)
            calendar = Calendar(schedule, asked.zone, Dst(on_gap=asked.on_gap, on_overlap=asked.on_overlap))
        except InvalidInput as error:
            if not error.detail.startswith("Expected "):
                raise Broken(f"an error that does not say what was expected: {error.detail}") from error
        else:
            _ask(calendar, asked.at_ms)
        return time.process_time() - began

    async def check(self) -> None:
        """Nothing shows afterwards."""

    def resident_bytes(self) -> int:
        return resident_bytes(os.getpid())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was opened."""


def _ask(calendar: Calendar, at: int) -> None:
    following = calendar.next(at)
    if following is not None:
        calendar.mark(following)
        calendar.local(following)
        told = (
            following > at,
            calendar.previous(following + 1) == following,
            calendar.count(at, following) == 1,
            calendar.between(at, following, limit=2) == [following],
        )
        if not all(told):
            raise Broken(f"next({at}) is {following}, but the others do not agree: {told}")
    earlier = calendar.previous(at)
    if earlier is not None:
        later = calendar.next(earlier)
        if earlier >= at or (later is not None and later < at):
            raise Broken(f"previous({at}) is {earlier}, and next({earlier}) is {later}")


def _text(dice: random.Random) -> str:
    if dice.random() < 0.1:
        return dice.choice(_WHOLE)
    count = 5 if dice.random() < 0.7 else dice.choice((6, 6, 4, 7, 0))
    return " ".join(_field(dice) for _ in range(count))


def _field(dice: random.Random) -> str:
    parts = []
    for _ in range(1 if dice.random() < 0.8 else dice.randint(2, 5)):
        kind = dice.random()
        low, high = (str(dice.choice(_NUMBERS)) if dice.random() < 0.8 else dice.choice(_NAMES) for _ in range(2))
        if kind < 0.4:
            part = "*"
        elif kind < 0.7:
            part = low
        elif kind < 0.85:
            part = f"{low}-{high}"
        else:
            part = dice.choice((*_SPREAD, *_NAMES, "?"))
        parts.append(part if dice.random() < 0.8 else f"{part}/{dice.choice(_NUMBERS)}")
    return ",".join(parts)
