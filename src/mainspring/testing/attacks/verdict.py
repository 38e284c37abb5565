"""What an attack may cost others, and what it did cost them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mainspring.testing.attacks.attack import Attack
from mainspring.testing.attacks.punctuality import Punctuality
from mainspring.testing.attacks.witness import Experience

LONGEST_P99_SECONDS: Final = 0.5
LONGEST_LATENESS_SECONDS: Final = 0.5
LONGEST_RECOVERY_SECONDS: Final = 15.0

COLUMNS: Final = (
    "attack",
    "got through",
    "p99",
    "longest",
    "timers late",
    "fetches late",
    "memory",
    "recovered",
    "result",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a server bore an attack."""

    attack: Attack
    achieved: int
    size: int
    seconds: float
    experiences: tuple[Experience, ...]
    timers: Punctuality
    fetches: Punctuality
    growth_bytes: int
    recovery_seconds: float
    """Infinite: it did not recover while anybody was looking."""
    exit_code: int | None
    """None: the server was still there."""

    @property
    def p99(self) -> float:
        return max(experience.p99 for experience in self.experiences)

    @property
    def longest(self) -> float:
        return max(experience.longest for experience in self.experiences)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What was worse than it may be."""
        attack = self.attack
        refused = sum(experience.refused for experience in self.experiences)
        most = attack.most_per_second
        found = {
            f"the server ended with {self.exit_code}": self.exit_code is not None,
            f"{refused} requests of a good client were not answered": refused > 0,
            f"p99 above {LONGEST_P99_SECONDS} s": self.p99 > LONGEST_P99_SECONDS,
            f"{self.timers.missing} of {len(self.timers.lateness)} good timers not called": self.timers.missing > 0,
            f"{self.fetches.missing} of {len(self.fetches.lateness)} good fetches not called": self.fetches.missing > 0,
            f"later than {LONGEST_LATENESS_SECONDS} s": (
                LONGEST_LATENESS_SECONDS < max(self.timers.worst, self.fetches.worst) < float("inf")
            ),
            f"more than {attack.most_growth_bytes // 1_000_000} MB": self.growth_bytes > attack.most_growth_bytes,
            f"not recovered in {LONGEST_RECOVERY_SECONDS:g} s": self.recovery_seconds > LONGEST_RECOVERY_SECONDS,
            f"{attack.counts}: {self.achieved}": most is not None
            and self.achieved > most * self.size * (self.seconds + 1.0),
        }
        return tuple(complaint for complaint, is_right in found.items() if is_right)

    def row(self) -> tuple[str, ...]:
        """A row of the table."""
        return (
            self.attack.name,
            f"{self.achieved:,} {self.attack.counts}",
            _milliseconds(self.p99),
            _milliseconds(self.longest),
            _milliseconds(self.timers.worst),
            _milliseconds(self.fetches.worst),
            f"{self.growth_bytes / 1e6:+.0f} MB",
            f"{self.recovery_seconds:.1f} s" if self.recovery_seconds < float("inf") else "never",
            "held" if not self.complaints else "BROKEN",
        )


def table(verdicts: list[Verdict]) -> str:
    """All verdicts, as Markdown that can be read as it is."""
    rows = [COLUMNS, *(verdict.row() for verdict in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(lines)


def _line(cells: tuple[str, ...] | list[str], widths: list[int]) -> str:
    return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))} |"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < float("inf") else "never"
