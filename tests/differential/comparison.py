"""Asks twins the same, and stops at the first answer that is not the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from mainspring.testing.target import Answer, TargetServer
from tests.differential.questions import Asking, Hosts, Request
from tests.differential.twin import BEGINNING_MS, Twin, twin
from tests.servers.process import free_port

LEAPS_MS: Final = (100, 700, 1000, 3000, 5000, 30_000, 60_000, 60_000, 600_000, 3_600_000)
LEAP_RATE: Final = 0.12
LATER_MS: Final = 90_000
SHOWN: Final = 600


@dataclass(frozen=True, slots=True)
class Difference:
    step: int
    request: Request
    answers: Mapping[str, tuple[int, Any]]

    def __str__(self) -> str:
        (first, expected), *others = self.answers.items()
        told = [
            f"  {where}: {first} {_shown(one)}, {name} {_shown(two)}"
            for name, answer in others
            for where, one, two in islice(_differences(expected, answer, ""), 10)
        ]
        return "\n".join([f"step {self.step}: {str(self.request)[:SHOWN]}", *(told or [f"  {_shown(expected)}"])])


def _differences(one: Any, two: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two answers differ, and what each says there."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        pairs: Iterable[tuple[Any, Any, Any]] = ((key, one[key], two[key]) for key in one)
    elif isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        pairs = zip(range(len(one)), one, two, strict=True)
    else:
        if one != two:
            yield where, one, two
        return
    for key, left, right in pairs:
        yield from _differences(left, right, f"{where}/{key}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:SHOWN]


@dataclass(slots=True)
class Report:
    steps: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    """Requests that were carried out, by path."""
    difference: Difference | None = None


async def compare(
    store_urls: Mapping[str, str], *, seed: int, steps: int, progress: Callable[[int], None] = lambda _: None
) -> Report:
    """`store_urls` of empty stores, by name; the first is what the others are compared with."""
    dice = random.Random(f"{seed}/time")
    report = Report()
    async with receivers() as (hosts, later), AsyncExitStack() as stack:
        twins = [await stack.enter_async_context(twin(name, url, hosts.good)) for name, url in store_urls.items()]
        now = BEGINNING_MS
        asking = Asking(seed, hosts, lambda: now)
        for request in _opening():
            await _ask(twins, request, report)
        while report.steps < steps and report.difference is None:
            leap = dice.choice(LEAPS_MS) if dice.random() < LEAP_RATE else dice.randint(1, 20)
            later(now + leap + LATER_MS)
            [now] = {await each.move(leap) for each in twins}
            request = asking.draw()
            asking.learn(request, await _ask(twins, request, report))
            progress(report.steps)
    return report


async def _ask(twins: list[Twin], request: Request, report: Report) -> tuple[int, Any]:
    report.steps += 1
    answers = {each.name: await each.ask(request) for each in twins}
    first = answers[twins[0].name]
    report.statuses[first[0]] += 1
    if first[0] == 200:
        report.paths[request.path] += 1
    if any(answer != first for answer in answers.values()) or first[0] >= 500:
        report.difference = Difference(report.steps, request, answers)
    return first


def _opening() -> list[Request]:
    """Waits between retries are not to depend on dice."""
    policy = {"jitter": 0, "maxAttempts": 3, "initialIntervalSeconds": 1}
    asked = {"name": "default", "retryPolicy": policy, "historyRetentionDays": 90}
    return [Request("/v1/namespaces/update", json.dumps(asked).encode())]


@asynccontextmanager
async def receivers() -> AsyncIterator[tuple[Hosts, Callable[[int], None]]]:
    """Receivers, and how one of them is told the instant that it asks for."""
    async with TargetServer(host="127.0.9.1") as good, TargetServer(host="127.0.9.2") as gone:
        good.script("/no", Answer(body=b'{"ok":false}'))

        def later(instant: int) -> None:
            good.script("/later", Answer(body=json.dumps({"nextExecuteAt": instant, "payload": "again"}).encode()))

        yield Hosts(good=good.url, gone=gone.url, dead=f"http://127.0.9.3:{free_port()}"), later
