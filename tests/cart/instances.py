"""Instances of the shop that die and freeze, on one Mainspring and before one platform, all on a simulated clock.

An instance reaches its documents, timers and platform through a gate. One that is dead gets nothing through;
one that is frozen stands still at the gate, and goes on when it wakes up, with whatever it knew. A request that was
sent arrives at the platform, whatever becomes of its sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from mainspring import Mainspring
from telecom_cart.checkout import Checkouts
from telecom_cart.errors import CheckoutFailed, ProviderDown
from telecom_cart.model import Cart, Context
from telecom_cart.provider import Line, Provider
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop

_PAUSES: Final = (0.0, 0.0, 0.0, 0.001, 0.004)
"""What a step at the store takes: enough for others to come in between."""


class Killed(Exception):
    """The process is no more."""


class Gate:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._open = asyncio.Event()
        self._open.set()
        self.is_dead = False
        self.freezes_before = ""
        """The verb of the platform before which it will freeze."""

    @property
    def is_frozen(self) -> bool:
        return not self._open.is_set()

    def freeze(self) -> None:
        self._open.clear()

    def wake(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        await self._open.wait()
        if self.is_dead:
            raise Killed

    async def sends(self, verb: str) -> None:
        """It is about to ask the platform."""
        if verb == self.freezes_before:
            self.freezes_before = ""
            self.freeze()
        await self.passed()

    async def step(self) -> None:
        await asyncio.sleep(self._chance.choice(_PAUSES))
        await self.passed()


class _Gated:
    """Whatever it is, reached through a gate before each call, and after it."""

    def __init__(self, inner: object, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def gated(*given: Any, **named: Any) -> Any:
            await self._gate.step()
            answer = await found(*given, **named)
            await self._gate.passed()
            return answer

        return gated


class _Wire:
    """A provider whose requests arrive, also those of the dead."""

    def __init__(self, provider: Provider, gate: Gate, known: set[str]) -> None:
        self._provider = provider
        self._gate = gate
        self._known = known
        self._sent: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._provider, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def sent(*given: Any, **named: Any) -> Any:
            await self._gate.sends(name)
            request = asyncio.ensure_future(found(*given, **named))
            self._sent.add(request)
            request.add_done_callback(self._arrived)
            try:
                return await asyncio.shield(request)
            finally:
                await self._gate.passed()

        return sent

    async def create_cart(self, session: str, lines: Sequence[Line], *, currency: str) -> Context:
        made: Context = await self.__getattr__("create_cart")(session, lines, currency=currency)
        self._known.add(made.basket_id)
        return made

    def _arrived(self, request: asyncio.Future[Any]) -> None:
        self._sent.discard(request)
        if not request.cancelled():
            request.exception()  # it is looked at, or nobody is there to look


class Instance:
    def __init__(
        self,
        ms: Mainspring,
        provider: Provider,
        settings: Settings,
        chance: Random,
        *,
        machine: Random,
        time: Callable[[], float],
        known: set[str],
    ) -> None:
        """`machine` and `time` are there instead of the system's. `known`: baskets that somebody alive was told of,
        which it adds to."""
        self.gate = gate = Gate(chance)
        self.shop = shop = Shop(ms, _Wire(provider, gate, known), settings, is_only=False)
        for name in ("carts", "orders", "attempts", "listed", "unknown"):
            setattr(shop.repository, name, _Gated(getattr(shop.repository, name), gate))
        wakes = shop.carts._wakes  # of all its parts
        setattr(wakes, "_timers", _Gated(wakes._timers, gate))  # noqa: B010
        setattr(shop.repository, "new_id", lambda: machine.randbytes(10).hex())  # noqa: B010
        waiting = shop.checkouts._keys._processor._model
        waiting.monotonic, waiting.entropy = time, machine.randbytes
        self.told_failed: list[tuple[str, float]] = []
        """References of which somebody was told that nothing was ordered, and when that was looked at."""
        self._listen(shop.checkouts, time)

    def _listen(self, checkouts: Checkouts, time: Callable[[], float]) -> None:
        verdict: Callable[..., Coroutine[Any, Any, Any]] = checkouts._verdict

        async def heard(cart: Cart, reference: str, *, is_replay: bool) -> Any:
            begun = time()
            try:
                return await verdict(cart, reference, is_replay=is_replay)
            except (CheckoutFailed, ProviderDown):
                self.told_failed.append((reference, begun))
                raise

        checkouts._verdict = heard  # type: ignore[method-assign]

    def start(self) -> None:
        """What `async with shop` does, but for the namespace."""
        self.shop._spawn(self._swept())

    async def _swept(self) -> None:
        await self.shop.cleaner.sweep()

    def kill(self) -> None:
        self.gate.is_dead = True
        self.gate.wake()
        for task in list(self.shop._tasks):
            task.cancel()
