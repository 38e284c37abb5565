"""An instance on one store: real store, engine, services and routes; only its clock is moved by hand.

After every request it comes to rest: what is due has been called and recorded. So the next answer depends on nothing
but the requests before it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec.structs import replace

from mainspring.api.app import build_app
from mainspring.api.asgi import AsgiApp
from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.delivery.sender import Sender
from mainspring.kernel.engine import Engine
from mainspring.model import FOREVER
from mainspring.processes.server import api_of
from mainspring.stores import timer_store_from_url
from tests.differential.answers import Names, comparable
from tests.differential.questions import Request
from tests.support.exchanges import call

BEGINNING_MS: Final = 1_893_456_000_000
"""The year 2030. Databases that remove what has expired go by their own clocks: nothing has expired for them."""
TOKEN: Final = "differential-token-of-enough-length"
REST_SECONDS: Final = 60.0
_LEASE_SECONDS: Final = 10_000_000.0
"""The clock makes leaps; they are not to cost the lease."""


class StandingClock:
    """Stands still until it is moved, so that whatever is done takes no time.

    Only seconds pass: what the engine tries again soon, such as a shard that was just being read, waits for them.
    """

    def __init__(self) -> None:
        self.now = BEGINNING_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000 + time.monotonic()

    async def time(self) -> int:
        """As a store answers."""
        return self.now

    def align(self, store_ms: int) -> None:
        """The store goes by this clock, too."""


class TimelessSender(Sender):
    """How long a call took is part of when it ended: none takes any time."""

    async def send(self, call: Call) -> Reply:
        return replace(await super().send(call), duration_ms=0)


class Twin:
    def __init__(self, name: str, instance: Instance, app: AsgiApp, clock: StandingClock) -> None:
        self.name = name
        self._instance = instance
        self._app = app
        self._clock = clock
        self._names = Names()
        self._next_due = FOREVER

    async def ask(self, request: Request) -> tuple[int, Any]:
        headers = {"x-request-id": "differential"} | ({"idempotency-key": request.key} if request.key else {})
        answer = await call(self._app, request.path, request.body, token=TOKEN, headers=headers)
        if answer.status == 200 and not request.only_reads:
            await self._rest()
        return comparable(answer.status, answer.body, self._names)

    async def move(self, ms: int) -> int:
        """Let time pass, and everything happen that is due by then; answers an instant at which nothing happened.

        The history counts in milliseconds: two attempts of one timer in the same one have no order.
        """
        self._clock.now += ms
        while True:
            if self._next_due <= self._clock.now:
                await self._rest()
            self._clock.now += 1
            if self._next_due > self._clock.now:
                return self._clock.now

    async def _rest(self) -> None:
        """Wait until nothing is due and nothing under way."""
        engine = self._instance.engine
        assert engine is not None
        engine.dispatcher.wake_reader.set()
        shard_ids = await self._instance.namespaces.shard_ids()
        pause = 0.001
        before: list[int | None] = []
        async with asyncio.timeout(REST_SECONDS):
            while True:
                if not self._is_busy(engine):
                    dues = await self._instance.store.next_due(shard_ids)
                    self._next_due = min((due for due in dues if due is not None), default=FOREVER)
                    # Shards are read one after the other: what moves from one to another could be missed once.
                    if self._next_due > self._clock.now and dues == before and not self._is_busy(engine):
                        return
                    before = dues
                await asyncio.sleep(pause := min(2 * pause, 0.05))

    def _is_busy(self, engine: Engine) -> bool:
        return bool(self._instance.calls_in_flight or engine.dispatcher.queued)


@asynccontextmanager
async def twin(name: str, store_url: str, job_base_url: str) -> AsyncIterator[Twin]:
    config = Config(
        allow_loopback=True,
        store=store_url,
        token=TOKEN,
        job_base_url=job_base_url,
        job_token=TOKEN,
        lease_seconds=_LEASE_SECONDS,
        renew_seconds=_LEASE_SECONDS / 2,
        circuit_failures=1_000_000,
    )
    clock = StandingClock()
    store = timer_store_from_url(store_url, clock=clock)
    store.time = clock.time  # type: ignore[method-assign]  # whoever asks the store for the time shall get the same
    surroundings = Surroundings(clock=clock, randomness=random.Random(0), senders=TimelessSender)
    async with Instance(config, store=store, surroundings=surroundings) as instance:
        yield Twin(name, instance, build_app(api_of(config, instance, TOKEN, shared=False)), clock)
