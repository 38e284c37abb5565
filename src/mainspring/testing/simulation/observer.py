"""Looks into instances while they run: for the peaks of what is bounded, and for what has to happen sometimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mainspring.kernel.dispatcher import Dispatcher
from mainspring.kernel.engine import Engine
from mainspring.kernel.unsent import FEW
from mainspring.model import Namespace
from mainspring.testing.oracle.journal import Bound, Commit
from mainspring.testing.simulation.left import LARGEST_ROW
from mainspring.testing.simulation.node import Inhabitant
from mainspring.testing.simulation.plan import World
from mainspring.timers.carrier import TimerCarrier

MANY: Final = 100
"""With more destinations than this, not all circuits are looked at."""


class Observer:
    def __init__(
        self,
        world: World,
        nodes: Mapping[str, Inhabitant],
        namespace: Callable[[], Namespace],
        *,
        sometimes: Callable[[str], None],
    ) -> None:
        """`nodes` are all processes there ever were, by name."""
        self._world = world
        self._nodes = nodes
        self._namespace = namespace
        self._sometimes = sometimes
        self._most: dict[tuple[str, str], int] = {}
        self._open_circuits: dict[str, int] = {}

    def committed(self, commit: Commit) -> None:
        """Something was written, and whoever asked for it does not know yet."""
        if commit.verb == "renew":
            node = self._nodes.get(commit.node)
            ownership = node.instance.ownership if node is not None and node.instance is not None else None
            if ownership is not None and ownership.fences and not ownership.valid():
                self._sometimes("lease lapsed here, yet kept")
        elif commit.verb == "write" and commit.service == "timers" and commit.after:
            for key in self._namespace().keys_of(commit.id):
                for node in self._nodes.values():
                    self._find_older(node, key.uuid, commit.delivery_id)

    def _find_older(self, node: Inhabitant, uuid: str, delivery_id: str) -> None:
        """Does this instance still have another delivery in hand of a row that was just written?"""
        engine = _engine_of(node)
        row = engine.dispatcher.window.rows.get(uuid) if engine is not None else None
        if engine is None or row is None or row.detail.delivery_id == delivery_id:
            return
        calls = engine.dispatcher._calls
        in_hand = "queued" if uuid not in calls else "starting" if calls[uuid][1] is None else "in flight"
        self._sometimes(f"re-created while {in_hand}")

    def sent(self, name: str, to_one_host: int, is_fetch: bool) -> None:
        """A call leaves an instance, which has this many of its kind under way to one destination."""
        if is_fetch:
            self._note(name, "fetches to a host", to_one_host)
            return
        engine = _engine_of(self._nodes[name])
        if engine is None:
            return
        dispatcher = engine.dispatcher
        self._note(name, "in-flight", dispatcher.in_flight)
        self._note(name, "window", dispatcher.in_flight + dispatcher.queued)
        self._note(name, "window bytes", dispatcher.window.bytes)
        self._note(name, "host", to_one_host)
        self._note(name, "lanes", len(dispatcher._lanes))
        self._note(name, "unsent", len(dispatcher._unsent))
        self._note(name, "changed", len(dispatcher._changed))
        carrier = self._carrier_of(name)
        self._note(name, "addresses", len(carrier.destinations))
        self._note(name, "gone", len(carrier._gone))
        self._look_at_what_is_left(dispatcher)
        if len(self._world.destinations) < MANY:
            if dispatcher.open_circuits < self._open_circuits.get(name, 0):
                self._sometimes("circuit closed")
            self._open_circuits[name] = dispatcher.open_circuits

    def _look_at_what_is_left(self, dispatcher: Dispatcher) -> None:
        window = dispatcher.window
        if window.left_any and window.room == 0:
            self._sometimes("rows left in the store")
            if window._places.everybody.left or window._bytes.everybody.left:
                self._sometimes("full window meets empty lane")
        if window.left_any and window._bytes.free == 0 and len(window) < self._world.window_limit:
            self._sometimes("rows left for their bytes")
        if any(shard.left_to is not None for shard in dispatcher._agenda.shards.values()):
            self._sometimes("second refill")

    def _carrier_of(self, name: str) -> TimerCarrier:
        instance = self._nodes[name].instance
        assert instance is not None
        return instance.timers_assembly.carrier

    def _note(self, name: str, what: str, value: int) -> None:
        self._most[name, what] = max(value, self._most.get((name, what), 0))

    def bounds(self) -> Iterator[Bound]:
        """The most that was seen in each instance. What an instance knows about destinations is bounded by numbers that
        no run reaches: none has that many. It knows each only once."""
        world = self._world
        limits = {
            "in-flight": world.in_flight_limit,
            "window": world.window_limit,
            "window bytes": world.window_bytes + LARGEST_ROW,
            "host": world.host_limit,
            "fetches to a host": max(1, min(world.host_limit, (world.fetch_limit + 1) // 2)),
            "lanes": world.window_limit,
            "unsent": max(FEW, world.window_limit) + len(self._namespace().shards),
            "changed": world.window_limit,
            "addresses": len(world.destinations),
            "gone": sum(destination.kind == "gone" for destination in world.destinations),
        }
        for (node, what), value in self._most.items():
            yield Bound(node=node, what=what, value=value, limit=limits[what])


def _engine_of(node: Inhabitant) -> Engine | None:
    return node.instance.engine if node.is_alive and node.instance is not None else None
