"""F: one owner at a time, and nobody else writes or sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mainspring.testing.oracle.history import Finding, History


def fenced(history: History) -> Iterator[Finding]:
    """F. A begin or finish commits under the fence that is its shard's version at that instant; the versions of a shard
    and of a row grow by one with each write; no begin is asked for, and no call is sent, outside the lease.

    The lease of an instance lasts its seconds from the instant at which its newest committed renewal was asked for. A
    process that was paused may find that out only after a call that it was about to make.
    Without commits nothing is known about this; its consequences are T1 and T5.
    """
    yield from _fences(history)
    yield from _versions(history)
    yield from _leases(history)


def _fences(history: History) -> Iterator[Finding]:
    versions: dict[int, int] = {}
    for place, commit in history.commits:
        shard = commit.shard
        if shard is None:
            continue
        known = versions.get(shard, commit.shard_version)
        what = f"{commit.verb} of {commit.node or 'somebody'} in shard {shard}"
        if commit.verb == "claim":
            if commit.before is None or commit.after != commit.before + 1 or known not in (None, commit.before):
                told = f"{commit.before}→{commit.after}"
                yield Finding(f"shard {shard}", f"{what} makes its version {told}; it was {known}", place)
            if commit.after is not None:
                versions[shard] = commit.after
        elif commit.verb in ("begin", "finish") and known is not None and commit.fence != known:
            yield Finding(
                commit.id or f"shard {shard}", f"{what} has fence {commit.fence}; the version is {known}", place
            )


def _versions(history: History) -> Iterator[Finding]:
    present: dict[tuple[str, str, int | None], int] = {}
    for place, commit in history.commits:
        if commit.verb not in ("write", "begin", "finish") or commit.before is None or commit.after is None:
            continue
        key = (commit.service, commit.id, commit.shard)
        known = present.get(key, commit.before)
        grows = commit.after in (0, commit.before + 1) or (commit.before == 0 and commit.after > 0)
        if commit.before != known or not grows:
            yield Finding(
                commit.id, f"{commit.verb} makes version {commit.before}→{commit.after}; it was {known}", place
            )
        present[key] = commit.after


def _leases(history: History) -> Iterator[Finding]:
    """In the order of asking and sending: a begin counts from where it was asked for, and may be committed later."""
    renewed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, commit in history.commits:
        if commit.verb == "renew":
            asked = commit.asked_at if commit.asked_at is not None else commit.at
            renewed[commit.node].append((commit.at, asked + history.lease_us))
    if not renewed:
        return
    for place, commit in history.commits:
        if commit.verb == "begin" and commit.asked_at is not None:
            until = _until(renewed, commit.node, commit.asked_at)
            if until is not None and commit.asked_at >= until:
                late = (commit.asked_at - until) / 1e6
                yield Finding(commit.id, f"{commit.node} asked for a begin {late:.3f} s after its lease", place)
    for place, sent in history.sent:
        until = _until(renewed, sent.node, sent.at)
        if until is not None and sent.at >= until and not _paused(history, sent.node, until, sent.at):
            late = (sent.at - until) / 1e6
            yield Finding(
                sent.id or sent.delivery_id,
                f"{sent.node} sent attempt {sent.attempt} of D={sent.delivery_id} {late:.3f} s after its lease",
                place,
            )


def _until(renewed: dict[str, list[tuple[int, int]]], node: str, at: int) -> int | None:
    """The end of the lease as a node can know it at an instant; None if nothing is known about its renewals."""
    if node not in renewed:
        return None
    return max((until for committed, until in renewed[node] if committed <= at), default=0)


def _paused(history: History, node: str, since: int, until: int) -> bool:
    """Whether it stood still when its lease ran out, or since."""
    return any(
        fault.kind == "pause"
        and fault.node in (None, node)
        and fault.at <= until
        and (fault.until is None or fault.until >= since)
        for fault in history.faults
    )
