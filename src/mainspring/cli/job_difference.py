"""What must be done so that a registry of jobs equals a file. Pure: two sets of jobs in, steps out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.cli.job_file import JobFile, Wanted
from mainspring.delivery.secrets import Secrets
from mainspring.errors import InvalidInput
from mainspring.jobs.difference import CONTENT, differences
from mainspring.jobs.messages import JobView

_SECRETS: Final = Secrets()


class Change(Struct, frozen=True, kw_only=True):
    """One field that differs, by its name in the file."""

    field: str
    old: object
    new: object


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about one job. An update has changes; some of them may pause or resume it."""

    kind: Literal["create", "update", "delete"]
    name: str
    wanted: Wanted | None = None
    present: JobView | None = None
    changes: tuple[Change, ...] = ()


def steps(file: JobFile, present: Iterable[JobView], *, prune: bool) -> list[Step]:
    """Creations and updates by name, then deletions. A job that needs nothing has no step. If the file has labels, only
    jobs that have them are deleted: the others are not its business."""
    wanted = file.jobs
    found = {job.name: job for job in present}
    planned = [step for name in sorted(wanted) if (step := _step(wanted[name], found.get(name))) is not None]
    others = sorted(found.keys() - wanted.keys()) if prune else []
    gone = [name for name in others if file.labels.items() <= found[name].labels.items()]
    return [*planned, *(Step("delete", name, present=found[name]) for name in gone)]


def _step(wanted: Wanted, present: JobView | None) -> Step | None:
    if present is None:
        return Step("create", wanted.job.name, wanted)
    wanted = _with_secrets(wanted, present)
    changes = tuple(_changes(wanted, present))
    return Step("update", wanted.job.name, wanted, present, changes) if changes else None


def _with_secrets(wanted: Wanted, present: JobView) -> Wanted:
    """A file that was exported without secrets has *** in their place: they stay as they are. What that cannot stand
    for is left to the server to refuse."""
    job = wanted.job
    try:
        kept = replace(
            job,
            headers=_SECRETS.kept_headers(job.headers, present.headers),
            url=job.url and _SECRETS.kept_url(job.url, present.url or "", "/url"),
            route=job.route and _SECRETS.kept_url(job.route, present.route or "", "/route"),
        )
    except InvalidInput:
        return wanted
    return Wanted(kept, wanted.named)


def _changes(wanted: Wanted, present: JobView) -> Iterator[Change]:
    for field, (old, new) in differences(wanted.job, present).items():
        yield Change(field=CONTENT[field], old=_without_secrets(field, old), new=_without_secrets(field, new))
    if present.state == "broken":
        yield Change(field="state", old="broken", new="scheduled")
    # A pause is somebody's decision of today; a file that does not speak of it leaves it alone.
    is_paused = present.state == "paused"
    if "paused" in wanted.named and wanted.job.paused != is_paused:
        yield Change(field="paused", old=is_paused, new=wanted.job.paused)
    elif is_paused and wanted.job.paused and "note" in wanted.named and wanted.job.note != present.note:
        yield Change(field="note", old=present.note, new=wanted.job.note)


def _without_secrets(field: str, value: object) -> object:
    """Differences end up in logs of pipelines: what looks like a credential is recognised, and not shown."""
    if field != "headers" or not isinstance(value, dict):
        return value
    return {
        name: f"sha256:{sha256(str(text).encode()).hexdigest()[:8]}" if _SECRETS.has(name) else text
        for name, text in value.items()
    }
