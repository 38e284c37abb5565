"""Defects planted into jobs, each a patch of one method. Rule C has to find every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from mainspring.errors import StoreUnavailable
from mainspring.jobs import accounting, queueing
from mainspring.jobs.accounting import ClockState
from mainspring.jobs.definition import Definition, Job
from mainspring.jobs.judging import Step, step
from mainspring.jobs.ledger import Launch, Ledger
from mainspring.jobs.messages import LaunchKind
from mainspring.jobs.rows import Rows


class Planted(NamedTuple):
    """A defect, the rule that has to find it, and the first seed from 0 on that shows it; None: not found so far."""

    patch: AbstractContextManager[object]
    rule: str
    seed: int | None


def _step(definition: Definition, kind: LaunchKind, blocker: Launch | None, *, is_kept: bool) -> Step:
    """What is on time is skipped because of a catch-up."""
    return step(definition, kind, blocker, is_kept=is_kept and kind == "catchup")


_launch = Rows.launch


async def _swallow(self: Rows, job: Job, launches: Sequence[tuple[str, Launch]], **fields: Any) -> list[str]:
    """A row that could not be written is forgotten."""
    try:
        return await _launch(self, job, launches, **fields)
    except StoreUnavailable:
        return []


async def _overwrite(self: Ledger, job: str, mark: str, launch: Launch) -> Launch:
    """What is on record gives way."""
    while True:
        entry = await self.get(job, mark)
        if await self.put(job, mark, launch, expect=0 if entry is None else entry.version):
            return launch


_account = accounting._adopted


def _adopt(job: Job, state: ClockState, as_of: int) -> ClockState:
    """A new job goes on where the one before it of the same name was."""
    if not state.terms.schedule:
        return _account(job, state, as_of)
    return replace(state, created_at=job.definition.created_at)


PLANTED: Final = {
    "catch-up skips what is on time": Planted(patch.object(queueing, "step", _step), "C", None),
    "a row that failed is swallowed": Planted(patch.object(Rows, "launch", _swallow), "C", None),
    "the ledger is overwritten": Planted(patch.object(Ledger, "_enter", _overwrite), "C", 13),
    "a dead job's state is kept": Planted(patch.object(accounting, "_adopted", _adopt), "C", None),
}
