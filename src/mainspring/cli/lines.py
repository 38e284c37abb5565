"""Timers as lines of a file: JSONL or CSV, read and written so that a round trip changes nothing.

A line holds the fields of `CreateTimer`, named as on the wire. In CSV the fields that are objects, and the
payload, are JSON text; an empty cell is an absent field. What a timer has lived through (attempts, state,
generation) is not part of a line: an imported timer is a new one, and never a parked one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from mainspring.errors import FieldError, InvalidInput
from mainspring.text import did_you_mean
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.wire.strict_json import decode

Format = Literal["jsonl", "csv"]

COLUMNS = CreateTimer.__struct_encode_fields__
_JSON_COLUMNS = frozenset({"payload", "headers", "labels", "retryPolicy"})
_NUMBER_COLUMNS = frozenset({"delaySeconds", "callbackTimeoutSeconds", "executeAt"})
LONGEST_LINE = 2_000_000


class Line(NamedTuple):
    """A line of a file: the timer it describes, or what is wrong with it."""

    number: int
    timer: CreateTimer | None
    problem: InvalidInput | None


def read_lines(source: IO[bytes], form: Format) -> Iterator[Line]:
    """Every line that is not empty. Raises InvalidInput when the file as a whole cannot be read."""
    for number, body in _jsonl_bodies(source) if form == "jsonl" else _csv_bodies(source):
        try:
            timer = decode(body, CreateTimer) if isinstance(body, bytes) else _refuse(body)
            if (timer.execute_at is UNSET) == (timer.delay_seconds is UNSET):
                raise InvalidInput("Expected exactly one of executeAt and delaySeconds")
            yield Line(number, timer, None)
        except InvalidInput as error:
            yield Line(number, None, error)


class Writer:
    """Writes timers as lines."""

    def __init__(self, target: IO[bytes], form: Format) -> None:
        self._target = target
        self._csv: csv.DictWriter[str] | None = None
        self._buffer = io.StringIO(newline="")
        if form == "csv":
            self._csv = csv.DictWriter(self._buffer, COLUMNS)
            self._csv.writeheader()
            self._drain()

    def write(self, timer: TimerView) -> None:
        encoded = msgspec.json.encode(_as_created(timer))
        if self._csv is None:
            self._target.write(encoded + b"\n")
            return
        cells = msgspec.json.decode(encoded, type=dict[str, Raw])
        self._csv.writerow({name: _cell(name, value) for name, value in cells.items()})
        self._drain()

    def _drain(self) -> None:
        self._target.write(self._buffer.getvalue().encode())
        self._buffer.seek(0)
        self._buffer.truncate()


def _as_created(timer: TimerView) -> CreateTimer:
    # Between the tokens of JSON a line break is mere space; inside a string it cannot stand.
    payload = bytes(timer.payload_json).replace(b"\n", b" ").replace(b"\r", b" ")
    return CreateTimer(
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        execute_at=timer.execute_at,
        callback_url=timer.callback_url,
        payload=UNSET if payload == b"null" else Raw(payload),
        headers=timer.headers,
        retry_policy=timer.retry_policy,
        callback_timeout_seconds=timer.callback_timeout_seconds,
        delivery=timer.delivery,
        labels=timer.labels,
    )


def _cell(name: str, value: Raw) -> str:
    return bytes(value).decode() if name in _JSON_COLUMNS | {"callbackTimeoutSeconds"} else msgspec.json.decode(value)


def _jsonl_bodies(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := source.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InvalidInput(f"Expected lines of at most {LONGEST_LINE} bytes, got a longer one at line {number}")
        if line.strip():
            yield number, line.strip()


def _csv_bodies(source: IO[bytes]) -> Iterator[tuple[int, bytes | InvalidInput]]:
    csv.field_size_limit(LONGEST_LINE)
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    try:
        header = next(reader, [])
        unknown = [name for name in header if name not in COLUMNS]
        if unknown or not header:
            hint = did_you_mean(unknown[0], COLUMNS) if unknown else ""
            raise InvalidInput(f"Expected the columns {', '.join(COLUMNS)}, got {', '.join(unknown) or 'none'}{hint}")
        first_line = reader.line_num + 1
        for row in reader:
            if row:
                yield first_line, _body_of(header, row)
            first_line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected CSV in UTF-8, got at line {reader.line_num}: {error}") from error
    finally:
        text.detach()


def _body_of(header: list[str], row: list[str]) -> bytes | InvalidInput:
    if len(row) != len(header):
        return InvalidInput(f"Expected {len(header)} cells, got {len(row)}")
    body: dict[str, Raw | str] = {}
    wrong: list[FieldError] = []
    for name, cell in zip(header, row, strict=True):
        if cell == "":
            continue
        if name in _JSON_COLUMNS or (name in _NUMBER_COLUMNS and cell.replace(".", "", 1).isdigit()):
            try:
                msgspec.json.decode(cell)
                body[name] = Raw(cell)
            except (msgspec.DecodeError, UnicodeError) as error:
                wrong.append(FieldError(f"/{name}", f"Expected JSON, got: {error}"))
        else:
            body[name] = cell
    if wrong:
        return InvalidInput("The line is not valid.", errors=tuple(wrong))
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        return InvalidInput(f"Expected text in UTF-8, got: {error}")


def _refuse(problem: InvalidInput) -> CreateTimer:
    raise problem
