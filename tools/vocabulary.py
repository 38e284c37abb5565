"""What things are called: a field of the API, the keyword of the client and the library, the flag of the command line.

One name for one thing. `executeAt` on the wire is `execute_at=` in Python and `--execute-at` in a terminal. This module
walks all operations of the API and says what each field is called where; `differences` finds what does not follow the
rule and is not among the exceptions, which are all here. `docs/reference/names.md` shows the result.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any, Final, NamedTuple

import click
import msgspec

from mainspring.api.routes import Route
from mainspring.cli import main as command_line
from mainspring.client import AsyncClient, Client
from mainspring.fetches.messages import OutboundRequest
from mainspring.jobs.calendar.calendar import Dst
from mainspring.library import Mainspring
from mainspring.model import RetryPolicy
from mainspring.sync_library import SyncMainspring

SERVICES: Final = ("timers", "jobs", "fetches", "namespaces")

FILLED_IN: Final = {
    "namespaces.delete": {"created_at": "the namespace that is there when the deletion begins"},
    "fetches.create": {"body_base64": "`body=` takes text or bytes"},
}
"""Fields that no keyword sets, and why."""

ONLY_PYTHON: Final = {
    "timers.create": {
        "handler": "a function of the program, instead of a `callback_url`; in the library",
        "connection": "a transaction of the program; in the library",
    },
    "timers.update": {"handler": "as in `create`; in the library"},
    "fetches.create": {"json": "a value that is sent as JSON, instead of a `body`"},
    "namespaces.delete": {"progress": "called every few seconds"},
    "namespaces.reshard": {"progress": "called every few seconds"},
}
"""Keywords that are no fields of the API."""

OTHER_FLAGS: Final = {
    "jobs.create": {"url": "--callback-url"},
    "jobs.update": {"url": "--callback-url"},
    "fetches.create": {"url": "TARGET_URL", "delivery_seconds": "--delivery-time"},
    "fetches.list": {"may_have_acted": "--unknown", "deliveries": "--undelivered"},
    "fetches.redeliver": {"deliveries": "--waiting"},
    "jobs.preview": {"schedule": "NAME_OR_SCHEDULE"},
}
"""Flags that are called otherwise: `--url` is that of the server, `--delivery` is what a timer risks, and those of
fetches say what a person looks for."""

OTHER_COMMANDS: Final = {
    "timers.bulk_delete": "timer delete",
    "timers.bulk_park": "timer park",
    "timers.bulk_resume": "timer resume",
    "timers.create_batch": "timer import",
}

WITHOUT_FLAG: Final = {
    "timers.create_batch": {"timers": "the file"},
    "timers.list": {"secrets": "`timer export --secrets`"},
    "jobs.list": {"secrets": "`job apply` compares with them"},
    "jobs.create": {"dry_run": "`job apply --dry-run`"},
    "jobs.update": {"dry_run": "`job apply --dry-run`"},
    "fetches.create": {"body_base64": "`--body-file`"},
    "fetches.redeliver": {"may_have_acted": "those are in `fetch list --unknown`"},
    "namespaces.delete": {"created_at": "as in Python"},
}
"""Fields that no flag sets, and what does instead."""

ONLY_COMMAND_LINE: Final = {
    "--all": "with a filter, every match; the field `all`",
    "--body-file": "the body from a file",
    "--clear": "a field back to its default",
    "--follow": "go on showing what is new",
    "--format": "of a file",
    "--from-line": "of a file",
    "--namespace": "of all timers in a file",
    "-n": "the same",
    "--no-host-limit": "`host_limit=None`",
    "--wait": "until it is over",
    "--wait-for": "at most",
    "--watch": "show it again and again",
    "--yes": "no question",
}
"""Flags of the commands below that are no fields of the API, beside those that every command has."""

PARTS: Final[Mapping[type[msgspec.Struct], str]] = {RetryPolicy: "retry_", Dst: ""}
"""Structs whose fields are flags of their own, and what those begin with."""

NOT_FOR: Final = {"jobs.create": ("--retry-on-exhausted",), "jobs.update": ("--retry-on-exhausted",)}
"""A run that has no attempt left is over."""


class Name(NamedTuple):
    """One field of an operation."""

    operation: str
    """`timers.create`."""
    field: str
    """As it is on the wire; a part of another field after a dot."""
    keyword: str
    """Empty if there is none."""
    flags: tuple[str, ...]
    """In capitals if it is given by its position."""


class Field(NamedTuple):
    """A field of a message: its name on the wire, what it is called in Python, and its type."""

    wire: str
    keyword: str
    kind: Any


def operations(routes: Sequence[Route]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Those of the services, with the message that each takes."""
    for route in routes:
        if route.tag in SERVICES and route.request is not None:
            verb = route.path.rpartition("/")[2].replace("-", "_")
            yield f"{route.tag}.{verb}", route.request


def names(routes: Sequence[Route]) -> Iterator[Name]:
    for operation, message in operations(routes):
        for field in _fields(message):
            is_filled_in = field.keyword in FILLED_IN.get(operation, {})
            flags = () if field.keyword in WITHOUT_FLAG.get(operation, {}) else _flags(operation, field)
            if field.keyword in _positions(_command(operation)):
                flags = (field.keyword.upper(),)
            yield Name(operation, field.wire, "" if is_filled_in else field.keyword, flags)


def differences(routes: Sequence[Route]) -> Iterator[str]:
    """Every name that does not follow the rule, in words."""
    expected: dict[str, set[str]] = {}
    for operation, message in operations(routes):
        fields = [*_fields(message)]
        yield from _keyword_differences(operation, {field.keyword for field in fields})
        command = _command(operation)
        if command is None:
            yield f"there is no `mainspring {command_name(operation)}`"
            continue
        for field in fields:
            flags = _flags(operation, field)
            expected.setdefault(command_name(operation), set()).update(flags)
            if field.keyword not in WITHOUT_FLAG.get(operation, {}):
                yield from _missing(command, operation, field, flags)
    for name, known in expected.items():
        yield from _strange(name, known)


def _keyword_differences(operation: str, fields: set[str]) -> Iterator[str]:
    wanted = fields - FILLED_IN.get(operation, {}).keys()
    for where, method in _methods(operation):
        taken = _keywords(method)
        for name in sorted(wanted - taken):
            yield f"{where}.{operation} has no {name}="
        for name in sorted(taken - wanted - ONLY_PYTHON.get(operation, {}).keys()):
            yield f"{where}.{operation} has {name}=, which is no field of the API"


def _missing(command: click.Command, operation: str, field: Field, flags: Collection[str]) -> Iterator[str]:
    positions = _positions(command)
    options = {name for parameter in command.params for name in parameter.opts if parameter.expose_value}
    for flag in flags:
        if flag not in options and field.keyword not in positions and flag.lower() not in positions:
            yield f"`mainspring {command_name(operation)}` has no {flag}"


def _positions(command: click.Command | None) -> set[str]:
    parameters = command.params if command is not None else ()
    return {str(parameter.name) for parameter in parameters if isinstance(parameter, click.Argument)}


def _strange(name: str, expected: Collection[str]) -> Iterator[str]:
    command = _find(name)
    assert command is not None
    for parameter in command.params:
        known = {*expected, *ONLY_COMMAND_LINE}
        if isinstance(parameter, click.Option) and parameter.expose_value and known.isdisjoint(parameter.opts):
            yield f"`mainspring {name}` has {parameter.opts[0]}, which is no field of the API"


def command_name(operation: str) -> str:
    service, _, verb = operation.partition(".")
    return OTHER_COMMANDS.get(operation) or f"{_singular(service)} {verb.replace('_', '-')}"


def _fields(message: type[msgspec.Struct], within: str = "") -> Iterator[Field]:
    """The call of a fetch is given by its parts."""
    for field in msgspec.structs.fields(message):
        if _holds(field.type, OutboundRequest):
            yield from _fields(OutboundRequest, f"{field.encode_name}.")
        else:
            keyword = re.sub(r"(?<!^)([A-Z])", r"_\1", field.encode_name).lower()
            yield Field(f"{within}{field.encode_name}", f"{keyword}_" if iskeyword(keyword) else keyword, field.type)


def _flags(operation: str, field: Field) -> tuple[str, ...]:
    other = OTHER_FLAGS.get(operation, {}).get(field.keyword)
    if other is not None:
        return (other,)
    for part, start in PARTS.items():
        if _holds(field.kind, part):
            flags = (_flag(start + each.keyword.removeprefix(start), each.kind) for each in _fields(part))
            return tuple(flag for flag in flags if flag not in NOT_FOR.get(operation, ()))
    return (_flag(field.keyword, field.kind),)


def _flag(keyword: str, kind: Any) -> str:
    name = keyword.rstrip("_")
    if _takes_many(kind):
        name = _singular(name)
    return f"--{name.removesuffix('_seconds').replace('_', '-')}"


def _takes_many(kind: Any) -> bool:
    return any(typing.get_origin(each) in (tuple, dict) for each in _alternatives(kind))


def _alternatives(kind: Any) -> Iterator[Any]:
    yield kind
    for part in typing.get_args(kind):
        if typing.get_origin(kind) not in (tuple, dict):
            yield from _alternatives(part)


def _singular(word: str) -> str:
    return {"fetches": "fetch"}.get(word, word.removesuffix("s"))


def _holds(kind: Any, part: type) -> bool:
    return kind is part or any(_holds(each, part) for each in typing.get_args(kind))


def _methods(operation: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    service, _, verb = operation.partition(".")
    for where, holder in _HOLDERS.items():
        yield where, getattr(getattr(holder, service), verb)


def _keywords(method: Callable[..., Any]) -> set[str]:
    """All names that it takes, those of its `**` group included."""
    hints = typing.get_type_hints(method)
    found: set[str] = set()
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= typing.get_args(hints[name])[0].__optional_keys__
        else:
            found.add(name)
    return found


def _command(operation: str) -> click.Command | None:
    return _find(command_name(operation))


def _find(path: str) -> click.Command | None:
    command: click.Command | None = command_line
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
        if command is None:
            return None
    return command


_HOLDERS: Final = {
    "client": AsyncClient("http://127.0.0.1:1", "-" * 32),
    "sync client": Client("http://127.0.0.1:1", "-" * 32),
    "library": Mainspring("memory://"),
    "sync library": SyncMainspring("memory://"),
}
