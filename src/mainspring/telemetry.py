"""Every log line and every metric of Mainspring: their names are here and nowhere else.

Logs go through the standard library's logger `mainspring`, as text on a terminal and as JSON lines elsewhere. A program
with handlers of its own gets the fields in the text of the message, and apart from it in `record.fields`. What is said
on behalf of a request that came with an id says which (`RequestIds`).
Metrics are plain numbers, rendered in the Prometheus text format; counting costs an addition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import logging


class RequestIds:
    """The ids under which a request came. Tasks that outlive it inherit them, and say them no more."""

    __slots__ = ("correlation_id", "is_over", "request_id")

    def __init__(self, request_id: str, correlation_id: str) -> None:
        self.request_id = request_id
        self.correlation_id = correlation_id
        """Empty if it came without one."""
        self.is_over = False

    def fields(self) -> dict[str, object]:
        if self.is_over:
            return {}
        correlated = {"correlation_id": self.correlation_id} if self.correlation_id else {}
        return {"request_id": self.request_id, **correlated}


served_request: Final[ContextVar[RequestIds | None]] = ContextVar("served_request", default=None)
"""The request on whose behalf something is done, if it came with an id."""


def correlation_id() -> str:
    """That of the request on whose behalf something is done; empty if there is none."""
    ids = served_request.get()
    return "" if ids is None or ids.is_over else ids.correlation_id


_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40
"""Those of `logging`, which is loaded when there is something to say: who only counts should not pay for it."""


@cache
def _logger(name: str = "mainspring") -> logging.Logger:
    import logging  # noqa: PLC0415

    return logging.getLogger(name)


def debug(message: str, **fields: object) -> None:
    _say(_DEBUG, message, fields)


def info(message: str, **fields: object) -> None:
    _say(_INFO, message, fields)


def warning(message: str, **fields: object) -> None:
    _say(_WARNING, message, fields)


def error(message: str, **fields: object) -> None:
    _say(_ERROR, message, fields)


def exception(message: str, trace: BaseException | None = None, /, **fields: object) -> None:
    """An error, followed by where it was raised: `trace`, or what is being handled."""
    _say(_ERROR, message, fields, True if trace is None else trace)


def access(message: str, **fields: object) -> None:
    """A request that was answered. It has a logger of its own, so that a program can send these lines elsewhere."""
    _say(_INFO, message, fields, name="mainspring.access")


def _say(
    level: int,
    message: str,
    fields: dict[str, object],
    trace: BaseException | bool | None = None,
    *,
    name: str = "mainspring",
) -> None:
    logger = _logger(name)
    if not logger.isEnabledFor(level):
        return
    from mainspring.loglines import Line  # noqa: PLC0415  (see `_logger`)

    ids = served_request.get()
    if ids is not None:
        fields = {**fields, **ids.fields()}
    logger.log(level, Line(message, fields), exc_info=trace, extra={"fields": fields}, stacklevel=3)


def announce(message: str, **fields: object) -> None:
    """A line that is written whatever the level: somebody waits for it."""
    from mainspring.loglines import Line  # noqa: PLC0415  (see `_logger`)

    logger = _logger()
    line = Line(message, fields)
    logger.handle(logger.makeRecord(logger.name, _INFO, "", 0, line, (), None, extra={"fields": fields}))


def set_up_logging(level: str, style: Literal["auto", "text", "json"]) -> None:
    from mainspring.loglines import handler  # noqa: PLC0415  (see `_logger`)

    logger = _logger()
    logger.handlers[:] = [handler(style)]
    logger.setLevel(level.upper())
    _logger("mainspring.access").setLevel(_INFO)  # who has asked for these lines gets them, whatever else is written
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
        self._counts[bisect_left(self.bounds_ms, milliseconds)] += 1

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
failures_left_out = Counter(
    "mainspring_failures_left_out_total", "Failures that were counted, but got no line in the log."
)
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


def labelled(texts: Mapping[str, str], label: str) -> str:
    """The metrics of several processes as one text, in which each sample says whose it is.

    They are not added up: a process that is replaced starts at zero, and only a counter that is its own shows that.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for value, text in texts.items():
        name = ""
        for line in text.splitlines():
            if line.startswith("#"):
                name = line.split(" ")[2]
                if line not in heads.setdefault(name, []):
                    heads[name].append(line)
            else:
                samples.setdefault(name, []).append(_with_label(line, f'{label}="{value}"'))
    return "".join("\n".join((*heads[name], *samples.get(name, ()))) + "\n" for name in heads)


def _with_label(sample: str, label: str) -> str:
    name, has_labels, rest = sample.partition("{")
    if has_labels:
        return f"{name}{{{label},{rest}"
    name, _, number = sample.partition(" ")
    return f"{name}{{{label}}} {number}"


def render_metrics(gauges: dict[str, tuple[str, Callable[[], float]]]) -> str:
    """The Prometheus text format; gauges are read at this moment."""
    parts = [metric.render() for metric in _metrics]
    for name, (text, read) in gauges.items():
        parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {read()}")
    return "\n".join(parts) + "\n"
