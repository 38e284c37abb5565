"""The network between the processes of a run: requests of clients to instances, of instances to each other, and calls
of instances to receivers. Each takes a drawn time there and back, and goes on even if its sender is gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from mainspring.client.transport import AsyncTransport
from mainspring.delivery.call import Call, Problem, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import MakesSenders
from mainspring.errors import InvalidInput, UnsafeTarget
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.simulation.desks import Answer, Targets, desk_of
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.plan import World
from mainspring.testing.simulation.receivers import Receivers

Respond = Callable[[Answer], None]
PEERS: Final = ".sim"


class Peer(Protocol):
    """An instance that listens."""

    @property
    def name(self) -> str: ...

    def receive(self, call: Call, respond: Respond, operation: str) -> None:
        """A request has arrived, or will as soon as the process goes on."""
        ...


class Wire:
    def __init__(
        self,
        loop: SimulatedLoop,
        world: World,
        draws: Draws,
        receivers: Receivers,
        *,
        journal: list[AnyEvent],
        wall_ms: Callable[[], int],
        peer: Callable[[str], Peer | None],
        sent: Callable[[str, int, bool], None],
    ) -> None:
        """`peer` finds who listens at an address; `sent` is told about every call that leaves an instance or an
        executor, how many it then has under way to the same destination, and whether the call is that of a fetch."""
        self._loop = loop
        self._world = world
        self._draws = draws
        self._receivers = receivers
        self._journal = journal
        self._wall_ms = wall_ms
        self._peer = peer
        self._sent = sent
        self._context = context_of(Process("wire"))
        self._open: dict[str, list[asyncio.Future[Reply]]] = {}
        """Requests that an instance has to answer."""
        self.cut_off: set[str] = set()
        """Instances that the others do not hear."""
        self.to_hosts: Counter[tuple[str, str]] = Counter()
        """Calls under way, by instance and destination."""

    def senders(self, node: str) -> MakesSenders:
        """What an instance makes its senders with."""

        def make(*, guard: Guard, **_: Any) -> SimulatedSender:
            return SimulatedSender(self, node, guard)

        return make

    # --- to instances ---------------------------------------------------------------------------------------

    async def ask(self, sender: str, call: Call, *, operation: str = "") -> Reply:
        """A request to an instance, of a client or of another instance."""
        future, started = self._begin(call)
        host = str(urlsplit(call.url).hostname)
        there = self._leg(f"{sender}/{host}")
        name = host.removesuffix(PEERS)
        is_cut = "/internal/" in call.url and (sender in self.cut_off or name in self.cut_off)
        is_wakeup = call.url.endswith("/internal/wake")
        lost = is_cut or (is_wakeup and self._draws.chance(f"lost/{sender}", self._world.wakeups_lost))
        if not lost:
            self._after(there, self._arrive, name, call, future, started, operation)
        return await future

    def _arrive(self, name: str, call: Call, future: asyncio.Future[Reply], started: int, operation: str) -> None:
        peer = self._peer(name)
        if peer is None:
            self._after(self._leg(name), self._end, future, started, "network", "nobody listens", False)
            return
        self._open.setdefault(peer.name, []).append(future)
        peer.receive(call, partial(self._respond, peer.name, future, started), operation)

    def _respond(self, name: str, future: asyncio.Future[Reply], started: int, answer: Answer) -> None:
        self._open[name].remove(future)
        self._after(self._leg(name), self._tell, future, started, answer)

    def _tell(self, future: asyncio.Future[Reply], started: int, answer: Answer) -> None:
        if not future.done():
            elapsed = self._elapsed(started)
            future.set_result(Reply(answer.status, answer.headers, answer.body, False, "", "", True, elapsed))

    def reset(self, name: str) -> None:
        """A process is gone, and its connections with it."""
        for node, host in [key for key in self.to_hosts if key[0] == name]:
            del self.to_hosts[node, host]
        for future in self._open.pop(name, []):
            self._after(self._leg(name), self._end, future, self._loop.now_us, "network", "connection reset", True)

    # --- to receivers ---------------------------------------------------------------------------------------

    async def call(self, node: str, call: Call) -> Reply:
        future, started = self._begin(call)
        host = str(urlsplit(call.url).hostname)
        there = self._leg(f"{node}/{host}")
        if self._receivers.refuses(host, self._loop.now_us):
            self._after(there, self._end, future, started, "network", "connection refused", False)
            return await future
        self._after(there, self._received, node, call, host, future, started)
        desk = desk_of(call)
        sent = desk.sent(call, node=node, at=started)
        is_fetch = isinstance(desk, Targets)
        if sent is not None:
            self._journal.append(sent)
        elif not is_fetch:
            return await future
        way = node, f"fetch to {host}" if is_fetch else host
        self.to_hosts[way] += 1
        self._sent(node, self.to_hosts[way], is_fetch)
        try:
            return await future
        finally:
            if way in self.to_hosts:
                self.to_hosts[way] -= 1

    def _received(self, node: str, call: Call, host: str, future: asyncio.Future[Reply], started: int) -> None:
        answer = self._receivers.receive(call, host, node=node, now_us=self._loop.now_us, wall_ms=self._wall_ms())
        if not answer.is_silent:
            self._after(answer.after_us, self._answer, call, f"{host}/{node}", future, started, answer)

    def _answer(self, call: Call, way: str, future: asyncio.Future[Reply], started: int, answer: Answer) -> None:
        back = self._leg(way)
        heard = not future.done() and self._loop.now_us + back < started + call.timeout_ms * 1000
        self._receivers.answered(call, answer, now_us=self._loop.now_us, heard=heard)
        self._after(back, self._hear, future, started, answer)

    def _hear(self, future: asyncio.Future[Reply], started: int, answer: Answer) -> None:
        if answer.status is None:
            self._end(future, started, "network", "the connection was cut", True)
        else:
            self._tell(future, started, answer)

    # --- both -----------------------------------------------------------------------------------------------

    def _begin(self, call: Call) -> tuple[asyncio.Future[Reply], int]:
        started = self._loop.now_us
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._after(call.timeout_ms * 1000, self._end, future, started, "timeout", "no answer in time", True)
        return future, started

    def _end(self, future: asyncio.Future[Reply], started: int, problem: Problem, detail: str, sent: bool) -> None:
        if not future.done():
            detail = f"simulated: {detail}"
            future.set_result(Reply(None, {}, b"", False, problem, detail, sent, self._elapsed(started)))

    def _elapsed(self, started: int) -> int:
        return round((self._loop.now_us - started) / 1000)

    def _leg(self, label: str) -> int:
        return self._draws.draw(f"wire/{label}", self._world.wire * 1000 + 1)

    def _after(self, microseconds: int, act: Callable[..., object], *args: object) -> None:
        self._loop.call_at_us(self._loop.now_us + microseconds, act, *args, context=self._context)


class SimulatedSender:
    """Takes the place of `delivery.sender.Sender`."""

    def __init__(self, wire: Wire, node: str, guard: Guard) -> None:
        self._wire = wire
        self._node = node
        self._guard = guard

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def send(self, call: Call) -> Reply:
        try:
            target = self._guard.check_url(call.url)
        except (InvalidInput, UnsafeTarget) as error:
            return Reply(None, {}, b"", False, "refused", error.detail, False, 0)
        if target.host.endswith(PEERS):
            return await self._wire.ask(self._node, call)
        return await self._wire.call(self._node, call)


class SimulatedTransport(AsyncTransport):
    """Takes the place of the SDK's: carries one operation of a client."""

    def __init__(self, wire: Wire, client: str, operation: str) -> None:
        super().__init__()
        self._wire = wire
        self._client = client
        self._operation = operation

    async def open(self) -> None:
        """There is no connection to keep."""

    async def close(self) -> None:
        """There is none."""

    async def send(self, call: Call) -> Reply:
        return await self._wire.ask(self._client, call, operation=self._operation)
