"""Which definitions of a job may have been in force, and from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mainspring.testing.oracle.history import NEVER, History, Operation
from mainspring.testing.oracle.journal import JobTerms

NOTICED_MS: Final = 75_000
"""How long it may take until somebody looks at a definition that no clock was told about."""
REGISTRY: Final = "jobs:meta/"
DEFINES: Final = frozenset({"create", "update", "foreign-write"})


@dataclass(frozen=True)
class Reign:
    """A definition, and from when to when it may have been in force; None: there is no job, or an incomprehensible
    one."""

    since: int
    until: int
    terms: JobTerms | None
    noticed: int = 0
    """When its clock knows about it, if nothing holds that up."""
    is_deleted: bool = False
    """It ended with the job: nobody will account for what its clock had not accounted for."""


def committed(history: History, name: str) -> Iterator[Reign]:
    """What the registry held. A change counts from the instant that it gives itself, which is before its commit. What
    leaves the terms as they are (`lastRun`) is no change."""
    commits = [commit for commit in history.commits if commit.event.id == REGISTRY + name]
    present = Reign(-NEVER, NEVER, None)
    for _, commit in commits:
        terms = commit.job
        is_foreign = not commit.node
        if terms is not None and terms == present.terms and not is_foreign:
            continue
        said = history.at_of(terms.updated_ms) if terms and terms.updated_ms and not is_foreign else commit.at
        noticed = commit.at + (NOTICED_MS * 1000 + history.lease_us if is_foreign else 0)
        yield replace(present, until=noticed, is_deleted=commit.verb == "forget")
        unsaid = NOTICED_MS * 1000 if is_foreign else 0  # a repeated look decides as of its first try
        present = Reign(min(said, commit.at) - unsaid, NEVER, terms, noticed)
    yield present


def asked_for(history: History, name: str, operations: Sequence[Operation]) -> Iterator[Reign]:
    """From when to when each definition may be in force: from its request to the answer of one that came after."""
    changes = [o for o in operations if o.verb in DEFINES or o.verb == "delete"]
    yield Reign(-NEVER, _replaced(history, changes, -1), None)
    for change in changes:
        until = _replaced(history, changes, change.until)
        if change.verb == "delete":
            yield Reign(change.invoke.at, until, None)
        for item in change.asked(name):
            if item.job is not None:
                yield Reign(change.invoke.at, until, item.job)


def _replaced(history: History, changes: Sequence[Operation], after: int) -> int:
    """When something has certainly replaced what was in force at a place."""
    ends = [history.events[c.answered].at for c in changes if c.is_ok and c.place > after]
    return min(ends, default=NEVER)
