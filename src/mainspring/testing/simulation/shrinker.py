"""Makes a failing history smaller, as long as the same rule is broken: fewer blows, fewer clients, fewer operations,
less chance, and default settings. Draws go by labels, so what is left out changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from mainspring.testing.simulation.plan import Destination, Plan, World
from mainspring.testing.simulation.simulate import Outcome, simulate

LONGEST: Final = 400
"""How many runs one history is worth."""
LABELS: Final = ("order", "dice/", "spike/", "wire/", "receiver/", "store/", "single/", "late/", "lost/", "flap/")


class Shrinker:
    def __init__(
        self, outcome: Outcome, rule: str, *, runs: int = LONGEST, told: Callable[[int], None] = print
    ) -> None:
        """`told` is called with how many runs were made."""
        self._best = outcome
        self._rule = rule
        self._left = runs
        self._runs = 0
        self._told = told

    def smallest(self) -> Outcome:
        """The smallest history that was found in this many runs."""
        while self._left > 0:
            before = self._best.plan
            for way in (_fewer_regimes, _fewer_blows, _fewer_clients, _fewer_operations, _less_chance, _plainer):
                self._shrink(way)
            if self._best.plan == before:
                break
        return self._best

    def _shrink(self, way: Callable[[Plan], Iterator[Plan]]) -> None:
        """Take each smaller plan that still fails, and go on from there."""
        is_smaller = True
        while is_smaller and self._left > 0:
            is_smaller = False
            for plan in way(self._best.plan):
                if self._left <= 0:
                    return
                if self._fails(plan):
                    is_smaller = True
                    break

    def _fails(self, plan: Plan) -> bool:
        self._left -= 1
        self._runs += 1
        self._told(self._runs)
        outcome = simulate(plan)
        if not any(violation.rule == self._rule for violation in outcome.violations):
            return False
        self._best = outcome
        return True


def _without(things: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """None of them, halves, then all but one."""
    if not things:
        return
    yield ()
    size = len(things) // 2
    while size > 1:
        for start in range(0, len(things), size):
            yield things[:start] + things[start + size :]
        size //= 2
    for place in range(len(things)):
        yield things[:place] + things[place + 1 :]


def _fewer_blows(plan: Plan) -> Iterator[Plan]:
    return (replace(plan, blows=blows) for blows in _without(plan.blows))


def _fewer_regimes(plan: Plan) -> Iterator[Plan]:
    return (replace(plan, regimes=regimes) for regimes in _without(plan.regimes))


def _fewer_clients(plan: Plan) -> Iterator[Plan]:
    for client in dict.fromkeys(operation.client for operation in plan.operations):
        yield replace(plan, operations=tuple(one for one in plan.operations if one.client != client))


def _fewer_operations(plan: Plan) -> Iterator[Plan]:
    for operations in _without(plan.operations):
        yield replace(plan, operations=operations)
    for place, operation in enumerate(plan.operations):
        if len(operation.ids) > 1:
            for ids in (operation.ids[: len(operation.ids) // 2], operation.ids[len(operation.ids) // 2 :]):
                fewer = replace(operation, ids=ids)
                yield replace(plan, operations=(*plan.operations[:place], fewer, *plan.operations[place + 1 :]))


def _less_chance(plan: Plan) -> Iterator[Plan]:
    for label in LABELS:
        if label not in plan.muted:
            yield replace(plan, muted=(*plan.muted, label))


def _plainer(plan: Plan) -> Iterator[Plan]:
    """Default settings, and fast destinations."""
    plain = World()
    world = plan.world
    for name in World.__struct_fields__:
        if name in ("instances", "executors", "shards", "destinations", "policies", "skews"):
            continue
        if getattr(world, name) != getattr(plain, name):
            yield replace(plan, world=replace(world, **{name: getattr(plain, name)}))
    for place, destination in enumerate(world.destinations):
        if destination.kind != "fast":
            fast = (*world.destinations[:place], Destination(), *world.destinations[place + 1 :])
            yield replace(plan, world=replace(world, destinations=fast))


def shrink(outcome: Outcome, *, runs: int = LONGEST, told: Callable[[int], None] = lambda _: None) -> Outcome:
    """The smallest history found in which the first broken rule of `outcome` is broken."""
    return Shrinker(outcome, outcome.violations[0].rule, runs=runs, told=told).smallest()
