"""What there is to say about a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import AnyEvent, Call, Info, Invoke, Ok, Reply

LOSSES = frozenset({"T1", "Live"})
"""Rules that are broken when something that was promised does not happen."""
HEADINGS = (
    *(
        "store",
        "seconds",
        "operations acknowledged",
        "unknown",
        "kills",
        "pauses",
        "stops",
        "cuts",
        "database restarts",
    ),
    *("calls", "duplicates", "lost", "stale writes", "violations"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    store: str
    seconds: float
    acknowledged: int
    unknown: int
    """Nobody was told what became of them."""
    blows: Counter[str]
    calls: int
    duplicates: int
    """Calls of a delivery that its receiver had already accepted, and said so: whoever heard it has died or frozen."""
    verbs: Counter[str]
    points: Counter[str]
    """Crash points at which servers ended."""
    violations: Sequence[Violation]
    starved_seconds: float = 0.0
    """How long the machine was too busy for a server, all servers together: counted as pauses by the oracle."""
    stale_writes: int | None = None
    """None: not counted."""

    @property
    def lost(self) -> int:
        return sum(violation.rule in LOSSES for violation in self.violations)

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.stale_writes

    def row(self) -> str:
        """A row of the table in docs/guides/operating.md."""
        blows = self.blows
        cells = (
            *(self.store, f"{self.seconds:.0f}", f"{self.acknowledged:,}", f"{self.unknown:,}", blows["kill"]),
            *(blows["pause"], blows["stop"], blows["cut"] + blows["hold"], blows["database"]),
            *(f"{self.calls:,}", f"{self.duplicates:,}", self.lost),
            *("not counted" if self.stale_writes is None else self.stale_writes, len(self.violations)),
        )
        return f"| {' | '.join(map(str, cells))} |"

    def __str__(self) -> str:
        width = max(map(len, HEADINGS))
        cells = (cell.strip() for cell in self.row().strip("|").split("|"))
        lines = [f"{heading:{width}}  {cell}" for heading, cell in zip(HEADINGS, cells, strict=True)]
        if self.starved_seconds:
            lines.append(f"The machine was too busy to let servers run for {self.starved_seconds:.0f} s in all.")
            lines.append("Calls that were late or unknown because of that are no finding; take figures elsewhere.")
        return "\n".join(lines)


def heading() -> str:
    return f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}"


def figures_of(
    journal: Sequence[AnyEvent],
    violations: Sequence[Violation],
    *,
    store: str,
    seconds: float,
    blows: Counter[str],
    points: Counter[str],
    starved_seconds: float = 0.0,
) -> Figures:
    verbs = {event.op: event.verb for event in journal if isinstance(event, Invoke)}
    accepted: set[str] = set()
    calls = duplicates = 0
    for event in journal:
        if isinstance(event, Call):
            calls += 1
            duplicates += event.delivery_id in accepted
        elif isinstance(event, Reply) and event.accepted and event.status is not None:
            accepted.add(event.delivery_id)
    return Figures(
        store=store,
        seconds=seconds,
        acknowledged=sum(isinstance(event, Ok) for event in journal),
        unknown=sum(isinstance(event, Info) for event in journal),
        blows=blows,
        points=points,
        calls=calls,
        duplicates=duplicates,
        verbs=Counter(verbs[event.op] for event in journal if isinstance(event, Ok)),
        violations=violations,
        starved_seconds=starved_seconds,
    )
