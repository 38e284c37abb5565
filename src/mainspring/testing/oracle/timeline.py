"""A journal for people: one line per event, what belongs to the broken id marked, the broken rule last.

+12.034   i2   commit finish t3 v2→– D=b7 fence 4: done (succeeded)
"""  # noqa: RUF002 - a dash for what is not there

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import (
    AnyEvent,
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

SHORT: Final = 6
"""How much of a delivery id is shown, from its end: its beginning is always the same."""


def timeline(journal: Iterable[AnyEvent], violation: Violation | None = None, *, most: int = 200) -> str:
    """The whole journal or, around a violation, what happened to its id and the faults, up to a number of lines.

    Lines of the broken id begin with `*`, the one that broke the rule with `>`.
    """
    events = sorted(journal, key=lambda event: event.at)
    lines = list(_lines(events, violation))
    if len(lines) > most:
        lines = [f"… {len(lines) - most} lines before", *lines[-most:]]
    if violation is not None:
        lines.append(f"{violation.rule}  {violation.id}: {violation.detail}")
    return "\n".join(lines)


def _lines(events: list[AnyEvent], violation: Violation | None) -> Iterator[str]:
    told = _Told(events)
    for place, event in enumerate(events):
        text = told.line(event)
        if violation is None:
            yield f"{_instant(event.at)}   {text}"
        elif place == violation.place:
            yield f"{_instant(event.at)} > {text}"
        elif violation.id in told.ids(event):
            yield f"{_instant(event.at)} * {text}"
        elif isinstance(event, Fault):
            yield f"{_instant(event.at)}   {text}"


def _instant(at: int) -> str:
    return f"+{at / 1e6:07.3f}"


class _Told:
    """Words for events; knows which operation an answer belongs to, and which id a delivery belongs to."""

    def __init__(self, events: list[AnyEvent]) -> None:
        self._asked = {event.op: event for event in events if isinstance(event, Invoke)}
        self._ids: dict[str, str] = {}
        for event in events:
            if isinstance(event, Call | Commit | Sent) and event.delivery_id:
                self._ids.setdefault(event.delivery_id, event.id)

    def ids(self, event: AnyEvent) -> set[str]:
        match event:
            case Invoke():
                return {item.id for item in event.items}
            case Ok() | Fail() | Info():
                asked = self._asked.get(event.op)
                return {view.id for view in getattr(event, "views", ())} | (self.ids(asked) if asked else set())
            case Call() | Commit() | Sent():
                return {event.id, event.node, f"shard {getattr(event, 'shard', None)}"}
            case Reply():
                return {self._ids.get(event.delivery_id, "")}
            case Effect(key=id) | Held(lock=id):
                return {id}
            case _:
                return set()

    def line(self, event: AnyEvent) -> str:
        match event:
            case Invoke() | Ok() | Fail() | Info():
                return self._operation(event)
            case Sent() | Call() | Reply():
                return self._call(event)
            case Commit():
                return f"{event.node or '-':4} {_commit(event)}"
            case Fault():
                return f"{event.node or 'all':4} fault {_fault(event)}"
            case _:
                return _other(event)

    def _operation(self, event: Invoke | Ok | Fail | Info) -> str:
        asked = event if isinstance(event, Invoke) else self._asked.get(event.op)
        client = asked.client if asked is not None else "?"
        what = f"{event.op} {asked.verb}" if asked is not None else event.op
        match event:
            case Invoke():
                ids = " ".join(
                    f"{item.id}{'' if item.due_ms is None else f' due {item.due_ms}'}"
                    f"{'' if item.mark is None else f' {item.mark!r}'}"
                    for item in event.items
                )
                text = f"asks {what} {ids or 'all'}"
            case Ok():
                text = f"ok   {what} {', '.join(map(_view, event.views))}"
            case Fail():
                text = f"fail {what} {event.code}"
            case Info():
                text = f"info {what} {event.reason}"
        return f"{client:4} {text.rstrip()}"

    def _call(self, event: Sent | Call | Reply) -> str:
        which = f"D={_short(event.delivery_id)} attempt {event.attempt}"
        match event:
            case Sent():
                return f"{event.node or '-':4} sends {event.id} {which}"
            case Call():
                more = f"generation {event.generation} {event.mark!r}"
                return f"{event.host:4} call {event.id} {which} {more} from {event.node or '?'}"
            case Reply():
                answer = "says nothing" if event.status is None else f"answers {event.status}"
                again = "" if event.next_ms is None else f", again at {event.next_ms}"
                return f"     {answer} to {which}{' (accepted)' if event.accepted else ''}{again}"


def _commit(event: Commit) -> str:
    parts = [f"commit {event.verb}"]
    if event.shard is not None and event.verb in ("claim", "release"):
        parts.append(f"shard {event.shard}")
    if event.id:
        parts.append(event.id)
    if event.after is not None:
        parts.append(f"v{event.before or '–'}→{event.after or '–'}")  # noqa: RUF001 - a dash for what is not there
    if event.delivery_id:
        parts.append(f"D={_short(event.delivery_id)}")
    if event.delivery_before not in ("", event.delivery_id):
        parts.append(f"over D={_short(event.delivery_before)}")
    if event.fence is not None:
        parts.append(f"fence {event.fence}")
    if event.verb == "finish":
        parts.append(f"attempt {event.attempts}: {event.next} ({event.outcome})")
    elif event.state:
        parts.append(f"{event.state} due {event.due_ms}")
    return " ".join(parts)


def _fault(event: Fault) -> str:
    scope = [
        f"{name} {value}" for name in ("shard", "verb", "host", "id") if (value := getattr(event, name)) is not None
    ]
    until = "" if event.until is None else f"until {_instant(event.until)}"
    return " ".join(filter(None, (event.kind, event.mode, *scope, until)))


def _other(event: AnyEvent) -> str:
    match event:
        case Effect():
            return f"{event.client:4} work of {event.key} {event.stage} {event.token} {event.mark!r}"
        case Held():
            return f"{event.client:4} holds {event.lock} token {event.fence}"
        case Reached():
            return f"     reached {event.what}"
        case Left():
            rows = ", ".join(f"{row.id} D={_short(row.delivery_id)} {row.state}" for row in event.rows)
            return f"     left: {rows or 'nothing'}"
        case _:
            return f"     {event}"


def _view(view: View) -> str:
    return f"{view.id} D={_short(view.delivery_id)} generation {view.generation} {view.state}"


def _short(delivery_id: str) -> str:
    return delivery_id[-SHORT:]
