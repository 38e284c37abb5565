"""The clients of a run. Each creates timers of its own, changes and deletes some, and writes down what it was told.

Every request is sent once; which of the three outcomes it had is what the SDK says of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from mainspring.client import AsyncClient, Delivery, RetryPolicy, TimerView
from mainspring.errors import MainspringError
from mainspring.testing.torture.journal import Journal, Operation
from mainspring.testing.torture.receiver import Wish
from mainspring.timers.messages import to_ms

CLIENTS: Final = 64
LONGEST_DELAY_SECONDS: Final = 3.0
POLICY: Final = RetryPolicy(max_attempts=8, initial_interval_seconds=0.2, max_interval_seconds=1.0)

Verb = Literal["create", "update", "delete"]


class Workload:
    """`run` goes on until `stop` is called; each timer's life is planned from the seed."""

    def __init__(
        self,
        *,
        client: AsyncClient,
        target_url: str,
        journal: Journal,
        seed: int,
        clients: int = CLIENTS,
        prefix: str = "",
    ) -> None:
        """`prefix` is what its timer ids start with, to tell them from those of another workload."""
        self._client = client
        self._target_url = target_url
        self._journal = journal
        self._seed = seed
        self._clients = clients
        self._prefix = prefix
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._clients):
                tasks.create_task(self._one_client(number))

    async def _one_client(self, number: int) -> None:
        randomness = random.Random(f"{self._seed}/{number}")
        count = 0
        while not self._stopped.is_set():
            count += 1
            await self._one_timer(f"{self._prefix}{number:02}-{count:05}", randomness)
            await self._pause(randomness.uniform(0, 0.4))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return

    async def _one_timer(self, timer_id: str, randomness: random.Random) -> None:
        at_most_once = randomness.random() < 0.4
        wish = Wish(
            marker=f"{timer_id}/1",
            at_most_once=at_most_once,
            fails=randomness.choice((0, 0, 0, 1, 2)),
            reschedule=randomness.random() < 0.15,
        )
        delay = randomness.uniform(0, LONGEST_DELAY_SECONDS)
        created = await self._record(timer_id, "create", wish.marker, lambda: self._create(timer_id, wish, delay))
        if not created:
            await self._pause(0.1)  # the server is away; give it time to come back
            return
        if randomness.random() < 0.3:
            await self._pause(randomness.uniform(0, LONGEST_DELAY_SECONDS / 2))
            await self._update_once(timer_id, at_most_once, randomness)
        if randomness.random() < 0.25:
            await self._pause(randomness.uniform(0, LONGEST_DELAY_SECONDS / 2))
            await self._record(timer_id, "delete", "", lambda: self._delete(timer_id))

    async def _update_once(self, timer_id: str, at_most_once: bool, randomness: random.Random) -> None:
        wish = Wish(marker=f"{timer_id}/2", at_most_once=at_most_once, fails=randomness.choice((0, 0, 1)))
        delay = randomness.uniform(0, LONGEST_DELAY_SECONDS) if randomness.random() < 0.7 else None
        await self._record(timer_id, "update", wish.marker, lambda: self._update(timer_id, wish, delay))

    async def _create(self, timer_id: str, wish: Wish, delay: float) -> TimerView:
        return await self._client.timers.create(
            timer_id,
            callback_url=self._target_url,
            delay_seconds=delay,
            payload=wish,
            delivery=Delivery.AT_MOST_ONCE if wish.at_most_once else Delivery.AT_LEAST_ONCE,
            retry_policy=POLICY,
            callback_timeout_seconds=5,
        )

    async def _update(self, timer_id: str, wish: Wish, delay: float | None) -> TimerView:
        if delay is None:
            return await self._client.timers.update(timer_id, payload=wish)
        return await self._client.timers.update(timer_id, payload=wish, delay_seconds=delay)

    async def _delete(self, timer_id: str) -> TimerView:
        return (await self._client.timers.delete(timer_id)).timer

    async def _record(
        self, timer_id: str, verb: Verb, marker: str, request: Callable[[], Awaitable[TimerView]]
    ) -> bool:
        """Make the request and write it down. False if it certainly did nothing."""
        invoked_at = time.monotonic()
        try:
            view = await request()
        except MainspringError as error:
            self._journal.write(
                Operation(
                    timer_id=timer_id,
                    verb=verb,
                    outcome="info" if error.outcome_unknown else "fail",
                    invoked_at=invoked_at,
                    returned_at=time.monotonic(),
                    marker=marker,
                    code=error.code,
                )
            )
            return error.outcome_unknown
        self._journal.write(
            Operation(
                timer_id=timer_id,
                verb=verb,
                outcome="ok",
                invoked_at=invoked_at,
                returned_at=time.monotonic(),
                marker=marker,
                delivery_id=view.delivery_id,
                generation=view.generation,
                execute_at=to_ms(view.execute_at),
                state=view.state,
                attempts=view.attempts,
            )
        )
        return True
