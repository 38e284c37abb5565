"""All rules, and the verdict on a journal.

| rule | promise                                                          | where                       |
|------|------------------------------------------------------------------|-----------------------------|
| T1   | what was acknowledged is kept                                    | `kept.kept`                 |
| T3   | nothing is early                                                 | `calls.early`               |
| T4   | what is sent is in force                                         | `calls.outdated`            |
| T5   | nothing is repeated without need                                 | `calls.repeated`            |
| T6   | attempts follow the policy                                       | `calls.against_policy`      |
| H    | the history has every attempt once                               | `attempts.history_entries`  |
| U    | unknown only where nobody can know                               | `attempts.groundless`       |
| F    | one owner writes and sends                                       | `ownership.fenced`          |
| B    | memory and slots are bounded                                     | `bounds.within_bounds`      |
| T7   | nobody waits for another's destination or shard                  | `bounds.punctual`           |
| Live | after healing everything due is done                             | `liveness.live`, and for    |
|      |                                                                  | fetches `fetches.overdue`,  |
|      |                                                                  | keys `idempotency.overdue`  |
| C    | every instant of a job is accounted for                          | `jobs.accounted`            |
| P    | a fetch is one call, with one end                                | `fetches.once`              |
| I    | work is done once per key, a lock has one holder                 | `idempotency.exactly_once`  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from mainspring.testing.oracle import attempts, bounds, calls, fetches, idempotency, jobs, kept, liveness, ownership
from mainspring.testing.oracle.history import Finding, History, Violation
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.oracle.world import World

Rule = Callable[[History], Iterator[Finding]]

RULES: Final[dict[str, Rule]] = {
    "T1": kept.kept,
    "T3": calls.early,
    "T4": calls.outdated,
    "T5": calls.repeated,
    "T6": calls.against_policy,
    "H": attempts.history_entries,
    "U": attempts.groundless,
    "F": ownership.fenced,
    "B": bounds.within_bounds,
    "T7": bounds.punctual,
    "Live": lambda history: chain(liveness.live(history), fetches.overdue(history), idempotency.overdue(history)),
    "C": jobs.accounted,
    "P": fetches.once,
    "I": idempotency.exactly_once,
}


def judge(journal: Iterable[AnyEvent], world: World) -> list[Violation]:
    """Every promise that was broken, rule by rule; of one rule, in the order in which they were."""
    history = History(journal, world)
    return [
        Violation(rule, *finding)
        for rule, find in RULES.items()
        for finding in sorted(find(history), key=lambda found: found.place)
    ]
