"""A measured figure beside the limit of the same machine and the aim, and how figures are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from rich.table import Table


class Aim(NamedTuple):
    """What a figure has to reach: itself, or its ratio to the limit."""

    of: Literal["measured", "ratio"]
    at: Literal["least", "most"]
    value: float

    def __str__(self) -> str:
        sign = "≥" if self.at == "least" else "≤"
        return f"{'ratio ' if self.of == 'ratio' else ''}{sign} {number(self.value)}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `limit` is what the machine does without the product, measured in the same run."""

    benchmark: str
    what: str
    unit: str
    measured: float
    limit: float | None = None
    aim: Aim | None = None

    @property
    def ratio(self) -> float | None:
        return self.measured / self.limit if self.limit else None

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        value = self.measured if self.aim.of == "measured" else self.ratio
        assert value is not None
        return value >= self.aim.value if self.aim.at == "least" else value <= self.aim.value


@dataclass(frozen=True, slots=True)
class Setting:
    """What a benchmark gets: a directory of its own, its size, and somebody to tell what it is doing."""

    directory: Path
    quick: bool
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    """What a reader of the figures has to know; stands below the table."""

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def number(value: float) -> str:
    """Three significant places are more than a shared machine deserves."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.benchmark,
        figure.what,
        f"{number(figure.measured)} {figure.unit}",
        "" if figure.limit is None else number(figure.limit),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        "" if figure.aim is None else str(figure.aim),
        {None: "", True: "yes", False: "NO"}[figure.met],
    )


COLUMNS = ("benchmark", "figure", "measured", "limit here", "ratio", "aim", "met")


def table(figures: Sequence[Figure]) -> Table:
    shown = Table(*COLUMNS)
    for figure in figures:
        shown.add_row(*cells(figure), style="red" if figure.met is False else "")
    return shown


def markdown(figures: Sequence[Figure]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, figures)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_json(figures: Sequence[Figure], machine: str) -> bytes:
    lines = [msgspec.structs.asdict(figure) | {"ratio": figure.ratio, "met": figure.met} for figure in figures]
    return msgspec.json.format(msgspec.json.encode({"machine": machine, "figures": lines}))
