"""A journal for people: one line per event, the broken ids marked, the broken rules last.

+12.034  i2   commit finish t3 v2→0 D=b7c1 fence 4 done succeeded        one who did something, and what
+12.040  c1   ok     delete-17 t3 D=b7c1                                     ! marks lines of a broken id
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import (
    AnyEvent,
    Asked,
    Call,
    Commit,
    Effect,
    Fail,
    Fault,
    Held,
    Info,
    Invoke,
    Left,
    Ok,
    Reached,
    Reply,
    Sent,
    View,
)
from mainspring.testing.oracle.parts import JobTerms
from mainspring.wire.instants import to_ms

_RENEWALS = frozenset({"renew", "put", "forget"})


def timeline(journal: Sequence[AnyEvent], violations: Sequence[Violation], *, whole: bool = False) -> Iterator[str]:
    """Lines of a history: all of it, or what concerns the broken ids and everybody."""
    broken = {violation.id for violation in violations}
    for event in journal:
        ids = _ids(event)
        marked = bool(broken & ids)
        if not whole and broken and ids and not marked:
            continue
        if isinstance(event, Commit) and event.verb in _RENEWALS and not marked and not whole:
            continue
        for who, what in _lines(event):
            yield f"{'!' if marked else ' '} +{event.at / 1e6:08.3f} {who:<6} {what}".rstrip()
    for violation in violations:
        yield f"! {violation}"


def _ids(event: AnyEvent) -> set[str]:
    match event:
        case Invoke(items=items):
            return {item.id for item in items}
        case Ok(views=views):
            return {view.id for view in views}
        case Call(id=id) | Sent(id=id) | Commit(id=id) | Effect(key=id) | Held(lock=id) if id:
            return {id, job_of(id)} if isinstance(event, Commit) else {id}
        case Commit(shard=int() as shard):
            return {f"shard {shard}"}
        case Reply(delivery_id=delivery_id):
            return {delivery_id}
        case _:
            return set()


def job_of(id: str) -> str:
    """The job that a row or a record belongs to, if any."""
    collection, _, key = id.partition("/")
    return key if collection == "jobs:meta" else collection.removeprefix("launch:").partition("@")[0]


def _lines(event: AnyEvent) -> Iterator[tuple[str, str]]:
    match event:
        case Invoke():
            yield event.client, f"ask    {event.op} {_all(map(_asked, event.items))} of {event.node or 'the store'}"
        case Ok():
            changed = "" if event.changed is None else f"{event.changed} changed"
            yield "", f"ok     {event.op} {_all(map(_view, event.views))}{changed}"
        case Fail():
            yield "", f"fail   {event.op} {event.code}"
        case Info():
            yield "", f"info   {event.op} {event.reason}"
        case Sent():
            yield event.node, f"send   {event.id} D={_short(event.delivery_id)} attempt {event.attempt}"
        case Call():
            told = f"{event.id} D={_short(event.delivery_id)} attempt {event.attempt} g{event.generation} {event.mark}"
            yield event.host.removesuffix(".example"), f"call   {told} of {event.node}, fence {event.fence}"
        case Reply():
            status = "cut" if event.status is None else event.status
            yield "", f"reply  D={_short(event.delivery_id)} attempt {event.attempt}: {status}"
        case Commit():
            yield event.node or "foreign", f"commit {_commit(event)}"
        case Fault():
            yield event.node or "all", f"fault  {_fault(event)}"
        case Reached():
            yield "", f"       ({event.what})"
        case Left():
            yield from _left(event)
        case Effect() | Held():
            yield event.client, _work(event)


def _work(event: Effect | Held) -> str:
    if isinstance(event, Effect):
        return f"work   {event.key} {event.stage} by {event.token} {event.mark}"
    until = "the end" if event.until is None else f"+{event.until / 1e6:.3f}"
    return f"held   {event.lock} until {until}, token {event.fence}"


def _asked(asked: Asked) -> str:
    due = "" if asked.due_ms is None else f" due {asked.due_ms % 10_000_000 / 1000:.3f}"
    to = "" if asked.host is None else f" to {asked.host.removesuffix('.example')}"
    return f"{asked.id}{due}{to}{' once' if asked.delivery == 'at-most-once' else ''}"


def _view(view: View) -> str:
    return f"{view.id} D={_short(view.delivery_id)} {view.state} g{view.generation} "


def _commit(commit: Commit) -> str:
    words = [commit.verb, commit.id]
    if commit.shard is not None and not commit.id:
        words.append(f"shard {commit.shard}")
    if commit.after is not None:
        words.append(f"v{_version(commit.before)}→{_version(commit.after)}")
    if commit.delivery_id:
        words.append(f"D={_short(commit.delivery_id)}")
    if commit.delivery_before not in ("", commit.delivery_id):
        words.append(f"instead of D={_short(commit.delivery_before)}")
    if commit.fence is not None:
        words.append(f"fence {commit.fence}")
    if commit.due_ms is not None and commit.after:
        words.append(f"due {commit.due_ms % 10_000_000 / 1000:.3f}")
    if commit.job is not None:
        words.append(_terms(commit.job))
    words += [commit.state if commit.after else "", commit.next, commit.outcome, commit.owner]
    if commit.asked_at is not None and commit.asked_at != commit.at:
        words.append(f"(asked +{commit.asked_at / 1e6:.3f})")
    return " ".join(word for word in words if word)


def _terms(job: JobTerms) -> str:
    zone = "" if job.time_zone == "UTC" else f" {job.time_zone}"
    bounds = "".join(
        f" {word} {ms % 10_000_000 / 1000:.3f}"
        for word, ms in (("from", job.start_ms), ("to", job.end_ms), ("of", job.created_ms), ("as of", job.updated_ms))
        if ms is not None
    )
    runs = "" if job.max_runs is None else f" {job.max_runs} runs"
    return f"{job.schedule}{zone} {job.catchup} {job.overlap}{bounds}{runs}{' paused' if job.paused else ''}"


def _fault(fault: Fault) -> str:
    words = [
        fault.kind,
        fault.mode,
        fault.verb or "",
        "" if fault.shard is None else f"shard {fault.shard}",
        fault.id or "",
    ]
    if fault.until is not None:
        words.append(f"until +{fault.until / 1e6:.3f}")
    return " ".join(word for word in words if word)


def _left(left: Left) -> Iterator[tuple[str, str]]:
    yield (
        "",
        f"left   {len(left.rows)} rows, alive: {', '.join(left.alive) or 'nobody'}; healed +{left.healed_at / 1e6:.3f}",
    )
    for owner in left.owners:
        if not owner.alive:
            yield "", f"       shard {owner.shard} v{owner.version} of {owner.owner or 'nobody'}, who does not know"
    for run in reversed(left.runs):
        until = "" if run.scheduled_until is None else f" to {to_ms(run.scheduled_until)}: {run.count}"
        yield "", f"       {run.launch_id}{until} {run.kind} {run.state} {run.reason[:60]} {run.attempts}"


def _all(words: Iterable[str]) -> str:
    return ", ".join(words)


def _short(delivery_id: str) -> str:
    return delivery_id.removeprefix("msg_")[:4]


def _version(version: int | None) -> str:
    if not version:
        return "0"
    return str(version) if version < 100_000 else f"…{version % 10_000:04d}"
