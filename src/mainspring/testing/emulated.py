"""Mainspring in a test, whole and in virtual time: the real engine and API on a store in memory.

    async with Emulated() as ms:
        ms.answer("https://bank.example/pay", Answer(body=b'{"paid": true}'))
        await ms.async_client().timers.create("remind", callback_url="https://shop.example/remind", delay_seconds=7200)
        [call] = await ms.advance(hours=2)
        assert call.url == "https://shop.example/remind"

Time stands still until it is moved. Whoever moves it waits until all that became due was called and has ended. Who
answers is in `mainspring.testing.outside_world`. The fixture `mainspring` has the same verbs for tests without a loop.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from mainspring.api.app import build_app
from mainspring.api.asgi import AsgiApp
from mainspring.client import AsyncClient, Client
from mainspring.client.transport import AsyncTransport, SyncTransport
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.emulator.clock import VirtualClock
from mainspring.emulator.emulation import SETTINGS, Emulation
from mainspring.errors import InvalidInput
from mainspring.keywords import refuse_unknown
from mainspring.library import Mainspring
from mainspring.processes.server import api_of
from mainspring.testing.in_process import reply_of
from mainspring.testing.outside_world import MadeCall, OutsideWorld, Scripted
from mainspring.wire.instants import to_instant, to_ms

URL: Final = "http://emulated.invalid"
TOKEN: Final = "only-for-the-emulated-mainspring"  # noqa: S105  (opens nothing but this)
PATIENCE_SECONDS: Final = 30.0
OWN_SETTINGS: Final = ("at", "patience_seconds", "randomness", "origins", "services")

_is_called: Final = ContextVar("is_called", default=False)
"""Whether this is a function that an emulated Mainspring has called: it has this from the engine's own tasks."""


class Emulated:
    """Use as `async with Emulated() as ms`. Settings are those of `Mainspring`."""

    def __init__(
        self, *, at: datetime | str | None = None, patience_seconds: float = PATIENCE_SECONDS, **settings: Any
    ):
        """It is `at` at the beginning, or now. `patience_seconds` is how long time may stand
        still because of calls that do not end."""
        if taken := sorted(SETTINGS.keys() & settings.keys()):
            raise InvalidInput(f"Expected settings other than {', '.join(taken)}: an emulated Mainspring has its own")
        refuse_unknown(settings, (*OWN_SETTINGS, *Config.__struct_fields__))
        clock = VirtualClock(at_ms=None if at is None else to_ms(_instant(at)))
        self._clock = clock
        self._patience = patience_seconds
        self._world = OutsideWorld(self.now)
        self._emulation = Emulation(clock, self._world)
        chosen = {"allow_loopback": True, "drain_seconds": 1.0, **settings, **SETTINGS}
        self.program = Mainspring(clock=clock, senders=self._emulation.senders, **chosen)
        """The library form: for handlers, functions on a calendar, origins, locks and records."""
        self._instance = self.program._instance
        self._app: AsgiApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            token = _is_called.set(True)  # the tasks that begin now inherit it
            try:
                await stack.enter_async_context(self.program)
            finally:
                _is_called.reset(token)
            self._passage = await stack.enter_async_context(self._emulation.attached(self._instance))
            self._loop = asyncio.get_running_loop()
            self._app = build_app(api_of(self._instance.config, self._instance, TOKEN, shared=False))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        handled = await self._stack.__aexit__(kind, error, traceback)
        if error is None:
            self._world.raise_fault()
        return handled

    def now(self) -> datetime:
        return to_instant(self._clock.now_ms())

    async def advance(
        self, *, weeks: float = 0, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> list[MadeCall]:
        """Let this much time pass; returns the calls that were made meanwhile. Nothing given: what is due right now."""
        passing = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return await self.advance_to(self.now() + passing)

    async def advance_to(self, instant: datetime | str) -> list[MadeCall]:
        """The same up to an instant. Raises what a function of the test that was to answer has raised."""
        self.refuse_if_called()
        until = _instant(instant)
        target = to_ms(until)
        if target < self._clock.now_ms():
            raise InvalidInput(f"Expected an instant from {self.now().isoformat()} on, got {until.isoformat()}")
        before, at = len(self.calls), self.now()
        while not await self._passage.go_to(target, seconds=self._patience):
            self._world.raise_fault()
            if self.now() == at:
                raise TimeoutError(
                    f"Expected all calls to have ended after {self._patience:g} s, but "
                    f"{self._instance.calls_in_flight} are still in flight; it is {at.isoformat()}"
                )
            at = self.now()
        self._world.raise_fault()
        return self.calls[before:]

    def forget_fault(self) -> None:
        """What has gone wrong in functions of the test is not to be raised."""
        self._world.fault = None

    def refuse_if_called(self) -> None:
        """Time waits for the functions that are called: one that moves it would wait for itself."""
        if _is_called.get():
            error = RuntimeError("A function that Mainspring calls cannot move the clock: do so in the test itself")
            self._world.fault = self._world.fault or error
            raise error

    @property
    def calls(self) -> list[MadeCall]:
        """All calls to URLs so far, in the order in which they were made."""
        return self._world.calls

    def answer(self, url: str, *answers: Scripted) -> None:
        """Answer calls to this URL, and to all below it, with these in turn; the last one stays."""
        self._world.answer(url, *answers)

    def async_client(self) -> AsyncClient:
        """A client of this Mainspring, for whatever loop; it need not be opened."""
        return AsyncClient(URL, TOKEN, retries=0, transport=_AsyncInProcess(self))

    def client(self) -> Client:
        """A client for threads other than that of the loop."""
        return Client(URL, TOKEN, retries=0, transport=_SyncInProcess(self))

    async def send(self, call: Call) -> Reply:
        """What the API answers to exactly these bytes."""
        assert self._app is not None, "Expected to be used inside the block"
        return await reply_of(self._app, call)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "Expected to be used inside the block"
        return self._loop


def _instant(at: datetime | str) -> datetime:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidInput(f"Expected an instant such as 2026-12-24T17:00:00Z, got {at!r:.100}") from None
    if not isinstance(at, datetime):
        raise InvalidInput(f"Expected an instant, as a datetime or text, got {at!r:.100}")
    if at.utcoffset() is None:
        raise InvalidInput(f"Expected an instant with an offset, such as tzinfo=UTC, got {at.isoformat()}")
    return at


class _AsyncInProcess(AsyncTransport):
    def __init__(self, emulated: Emulated) -> None:
        super().__init__()
        self._emulated = emulated

    async def open(self) -> None:
        """Nothing to open, so a client need not be opened either."""

    async def send(self, call: Call) -> Reply:
        emulated = self._emulated
        if asyncio.get_running_loop() is emulated.loop:
            return await emulated.send(call)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(emulated.send(call), emulated.loop))


class _SyncInProcess(SyncTransport):
    def __init__(self, emulated: Emulated) -> None:
        super().__init__()
        self._emulated = emulated

    def open(self) -> None:
        """Nothing to open, so a client need not be opened either."""

    def send(self, call: Call) -> Reply:
        return asyncio.run_coroutine_threadsafe(self._emulated.send(call), self._emulated.loop).result()
