"""Jobs, put together for one instance: what reads the registry, what carries the rows, and what users ask."""

from __future__ import annotations

import random
from collections.abc import Callable

from mainspring.clock import Clock
from mainspring.config import Config
from mainspring.delivery.call import Sends
from mainspring.delivery.guard import Guard
from mainspring.delivery.secrets import Secrets
from mainspring.errors import InvalidInput
from mainspring.failure_lines import FailureLines
from mainspring.jobs.clock_carrier import ClockCarrier
from mainspring.jobs.last_runs import LastRuns
from mainspring.jobs.ledger import Ledger
from mainspring.jobs.reconciler import Reconciler
from mainspring.jobs.record import Routing
from mainspring.jobs.registry import Registry
from mainspring.jobs.row_store import RowStore
from mainspring.jobs.rows import CLOCKS, RUNS
from mainspring.jobs.run_carrier import RunCarrier
from mainspring.jobs.service import JobService
from mainspring.kernel.carrier import Carrier
from mainspring.kernel.ownership import Ownership
from mainspring.namespaces.service import NamespaceService
from mainspring.store import RecordStore, Store
from mainspring.timers.handlers import HANDLER_SCHEME

DAY_MS = 86_400_000


class JobsAssembly:
    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        registry: RecordStore,
        namespaces: NamespaceService,
        sender: Sends,
        guard: Guard,
        secrets: Secrets,
        clock: Clock,
        randomness: random.Random,
        wake: Callable[[int, int], None],
        ownership: Ownership,
        allow_handlers: bool,
        failures: FailureLines,
    ) -> None:
        """`registry` is the store of the definitions, `store` that of everything else, `ownership` this instance's."""
        routing = Routing(config.job_base_url, config.job_token)
        check_url = self._check_readable if allow_handlers else guard.check_url
        self.registry = definitions = Registry(registry, clock, routing, randomness=randomness, check_url=check_url)
        ledger = Ledger(store, clock, retention_ms=config.run_retention_days * DAY_MS)
        self.rows = rows = RowStore(store=store, namespaces=namespaces, clock=clock, randomness=randomness, wake=wake)
        self.last_runs = LastRuns(registry=definitions, ledger=ledger, rows=rows, clock=clock)
        self._guard = guard
        self.run_carrier = RunCarrier(
            sender=sender,
            guard=guard,
            namespaces=namespaces,
            registry=definitions,
            ledger=ledger,
            rows=rows,
            clock=clock,
            randomness=randomness,
            ownership=ownership,
            last_runs=self.last_runs,
            host_limit=config.host_limit,
            failures=failures,
        )
        self.carriers: dict[str, Carrier] = {
            CLOCKS: ClockCarrier(registry=definitions, ledger=ledger, rows=rows, clock=clock),
            RUNS: self.run_carrier,
        }
        self.service = JobService(
            registry=definitions,
            ledger=ledger,
            rows=rows,
            clock=clock,
            check_url=self._check_target if allow_handlers else guard.check_url,
            max_body=config.max_payload_bytes,
            secrets=secrets,
        )
        self.reconciler = Reconciler(
            registry=definitions,
            records=registry,
            rows=rows,
            last_runs=self.last_runs,
            clock=clock,
            ownership=ownership,
            randomness=randomness,
            is_foreign=registry is not store,
        )

    def _check_readable(self, target: str) -> None:
        """What a record may name in a program. Its functions may be declared after the record was read."""
        if not target.startswith(HANDLER_SCHEME):
            self._guard.check_url(target)

    def _check_target(self, target: str) -> None:
        """What a job of this program may name: a function of it, or a URL."""
        self._check_readable(target)
        name = target.removeprefix(HANDLER_SCHEME)
        if name != target and name not in self.run_carrier.handlers:
            raise InvalidInput(f"Expected a function declared in this program, got {target!r}")
