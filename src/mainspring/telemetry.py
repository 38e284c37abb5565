"""Every log line and every metric of Mainspring: their names are here and nowhere else.

Logs go through the standard library's logger `mainspring`, as text on a terminal and as JSON lines elsewhere.
Metrics are plain numbers, rendered in the Prometheus text format; counting costs an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import logging

    logger: logging.Logger


def __getattr__(name: str) -> object:
    # `logging` is loaded when there is something to say: a library that only counts should not pay for it.
    if name == "logger":
        return _logger()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _logger() -> logging.Logger:
    import logging  # noqa: PLC0415

    return logging.getLogger("mainspring")


def debug(message: str, **fields: object) -> None:
    _logger().debug(message, extra={"fields": fields})


def info(message: str, **fields: object) -> None:
    _logger().info(message, extra={"fields": fields})


def warning(message: str, **fields: object) -> None:
    _logger().warning(message, extra={"fields": fields})


def error(message: str, **fields: object) -> None:
    _logger().error(message, extra={"fields": fields})


def announce(message: str, **fields: object) -> None:
    """A line that is written whatever the level: somebody waits for it."""
    import logging  # noqa: PLC0415  (see `__getattr__`)

    logger = _logger()
    logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None, extra={"fields": fields}))


def set_up_logging(level: str, style: Literal["auto", "text", "json"]) -> None:
    from mainspring.loglines import handler  # noqa: PLC0415  (see `__getattr__`)

    logger = _logger()
    logger.handlers[:] = [handler(style)]
    logger.setLevel(level.upper())
    logger.propagate = False


class Counter:
    """A number that only grows, split by at most one label."""

    def __init__(self, name: str, text: str, label: str = "") -> None:
        self.name, self.text, self.label = name, text, label
        self.values: dict[str, int] = {}
        _metrics.append(self)

    def add(self, value: str = "", amount: int = 1) -> None:
        self.values[value] = self.values.get(value, 0) + amount

    def render(self) -> str:
        lines = [f"# HELP {self.name} {self.text}", f"# TYPE {self.name} counter"]
        if not self.label:
            lines.append(f"{self.name} {self.values.get('', 0)}")
            return "\n".join(lines)
        # A label whose values are not known beforehand has no samples until there is something to count.
        lines += [f'{self.name}{{{self.label}="{value}"}} {count}' for value, count in sorted(self.values.items())]
        return "\n".join(lines)


class Histogram:
    """How often a duration fell below each bound."""

    def __init__(self, name: str, text: str, bounds_ms: tuple[int, ...]) -> None:
        self.name, self.text, self.bounds_ms = name, text, bounds_ms
        self._counts = [0] * (len(bounds_ms) + 1)
        self._sum_ms = 0
        _metrics.append(self)

    def observe(self, milliseconds: int) -> None:
        self._sum_ms += milliseconds
        for index, bound in enumerate(self.bounds_ms):
            if milliseconds <= bound:
                self._counts[index] += 1
                return
        self._counts[-1] += 1

    def render(self) -> str:
        lines = [f"# HELP {self.name} {self.text}", f"# TYPE {self.name} histogram"]
        total = 0
        for bound, count in zip((*(b / 1000 for b in self.bounds_ms), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{self.name}_sum {self._sum_ms / 1000}", f"{self.name}_count {total}"]
        return "\n".join(lines)


_metrics: list[Counter | Histogram] = []
_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000)

attempts = Counter("mainspring_attempts_total", "Attempts that ended, by outcome.", "outcome")
clock_jumps = Counter("mainspring_clock_jumps_total", "Jumps of the store's clock by more than a day.", "direction")
due_reads = Counter("mainspring_due_reads_total", "Reads of due timers from the store.")
wakeups = Counter("mainspring_wakeups_total", "Wake-ups of other instances, by fate.", "fate")
writes = Counter("mainspring_timer_writes_total", "Timer rows written or removed for users.")
unreadable = Counter("mainspring_unreadable_total", "Rows and records found that cannot be read, by kind.", "kind")
fetches = Counter("mainspring_fetches_total", "Fetches that ended here, by final state.", "state")
fetch_deliveries = Counter("mainspring_fetch_deliveries_total", "Results whose delivery is over, by its end.", "state")
late_results = Counter("mainspring_fetch_late_results_total", "Results that came after the first of their fetch.")
requests = Counter("mainspring_http_requests_total", "API requests, by status class.", "status")
lateness = Histogram("mainspring_lateness_seconds", "Start of a first attempt after its instant.", _BOUNDS_MS)
runs = Counter("mainspring_runs_total", "Instants of jobs that came to an end, by state.", "state")
run_lateness = Histogram(
    "mainspring_run_lateness_seconds", "Start of a run after its instant, jitter included.", _BOUNDS_MS
)
call_duration = Histogram("mainspring_call_seconds", "Duration of callbacks.", _BOUNDS_MS)
fetch_duration = Histogram("mainspring_fetch_seconds", "Duration of the calls of fetches.", _BOUNDS_MS)


def render_metrics(gauges: dict[str, tuple[str, Callable[[], float]]]) -> str:
    """The Prometheus text format; gauges are read at this moment."""
    parts = [metric.render() for metric in _metrics]
    for name, (text, read) in gauges.items():
        parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {read()}")
    return "\n".join(parts) + "\n"
