"""Timers, put together for one instance: what carries their rows, and what users ask."""

from __future__ import annotations

import random
from collections.abc import Callable

from mainspring.clock import Clock
from mainspring.config import Config
from mainspring.delivery.call import Sends
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.failure_lines import FailureLines
from mainspring.kernel.ownership import Ownership
from mainspring.namespaces.service import NamespaceService
from mainspring.store import Store
from mainspring.timers.carrier import TimerCarrier
from mainspring.timers.decision import Reschedules
from mainspring.timers.service import TimerService


class TimersAssembly:
    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        namespaces: NamespaceService,
        sender: Sends,
        guard: Guard,
        secrets: Secrets,
        clock: Clock,
        randomness: random.Random,
        ownership: Ownership,
        wake: Callable[[int, int], None],
        allow_handlers: bool,
        failures: FailureLines,
    ) -> None:
        self.carrier = TimerCarrier(
            sender=sender,
            guard=guard,
            namespaces=namespaces,
            records=store,
            timers=store,
            clock=clock,
            randomness=randomness,
            ownership=ownership,
            host_limit=config.host_limit,
            max_payload=config.max_payload_bytes,
            reschedules=Reschedules(round(config.reschedule_seconds * 1000), config.hasty_limit),
            failures=failures,
        )
        self.service = TimerService(
            store=store,
            namespaces=namespaces,
            clock=clock,
            randomness=randomness,
            check_url=self.carrier.check_target if allow_handlers else guard.check_url,
            wake=wake,
            revive=self.carrier.revive,
            max_payload=config.max_payload_bytes,
            secrets=secrets,
        )
