"""What people see: tables that fit, instants that do not wrap, colours only where there is somebody to see them."""

from __future__ import annotations

import re

import pytest

from mainspring.cli.globals import Globals
from mainspring.cli.output import cell, show_table
from tests.cli.conftest import Run
from tests.cli.terminal import on_terminal
from tests.support.running_server import Running

INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+0[12] \(in \d+ (?:min|h|days|years)\)")
WHERE = ("--callback-url", "https://example.com/hooks/a-rather-long-path/to-somewhere?and=more")


def test_a_table_escapes_what_would_turn_the_direction_or_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("id",), [("pay\u202efdp\x1b[2J\x9b\u2066",)], Globals(no_color=True))
    shown = capsys.readouterr().out
    assert r"pay\u202efdp\x1b[2J\x9b\u2066" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_row_that_is_piped_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("id", "detail"), [("a", "word " * 200), ("b", "x" * 1000)], Globals())
    assert [line[0] for line in capsys.readouterr().out.splitlines()] == ["i", "a", "b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (30.0, "30"),
        (0.25, "0.25"),
        ({}, ""),
        ((), ""),
        ({"team": "blue", "a": "b"}, "team=blue, a=b"),
        ([1, 2], "[1,2]"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_a_value_is_shown_in_few_signs(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_no_instant_wraps_and_what_has_no_room_is_named(run: Run, server: Running, columns: int) -> None:
    run("namespace", "create", "wide", "--shard-count", "2")
    for number, delay in enumerate(("5m", "90m", "300d")):
        run("timer", "create", f"timer-{number}", "--in", delay, "-n", "wide", *WHERE, "--label", "team=blue")
    shown = on_terminal(server, "timer", "list", "-n", "wide", columns=columns)
    lines = shown.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert len(INSTANT.findall(shown.text)) == 3
    assert all(INSTANT.search(line) for line in lines if line.startswith("timer-"))
    missing = [name for name in ("attempts", "callbackUrl", "labels") if name not in lines[0]]
    assert (f"Not shown for lack of room: {', '.join(missing)}." in lines) == bool(missing)
    assert (missing == []) == (columns >= 120)


@pytest.mark.slow
def test_the_values_of_one_thing_are_shown_on_the_narrowest_terminal(run: Run, server: Running) -> None:
    run("timer", "create", "narrow", "--in", "1d", *WHERE)
    shown = on_terminal(server, "timer", "get", "narrow", columns=40)
    assert max(map(len, shown.text.splitlines())) <= 40
    assert re.search(r"timerId +narrow", shown.text)
    assert "Not shown" not in shown.text


@pytest.mark.slow
def test_states_and_errors_have_colours_on_a_terminal_and_nowhere_else(run: Run, server: Running) -> None:
    run("timer", "create", "colourful", "--in", "1d", *WHERE)
    run("timer", "park", "colourful")
    get = ("timer", "get", "colourful")
    assert re.search(r"state +\x1b\[33mparked", on_terminal(server, *get).raw)
    red = "\x1b[31m\x1b[1mError:"
    assert red in on_terminal(server, "timer", "get", "nobody").raw
    assert red in on_terminal(server, "timer", "--nonsense").raw
    assert red in on_terminal(server, "--nonsense").raw
    plain = {"NO_COLOR": "1"}
    assert "\x1b[3" not in on_terminal(server, *get, variables=plain).raw
    assert "\x1b[" not in on_terminal(server, "timer", "get", "nobody", variables=plain).raw
    assert "\x1b[" not in on_terminal(server, "timer", "--nonsense", variables=plain).raw
    assert "\x1b[" not in on_terminal(server, "--nonsense", variables=plain).raw
    assert "\x1b[3" not in on_terminal(server, "--no-color", *get).raw
    assert "\x1b[" not in on_terminal(server, "--no-color", "timer", "get", "nobody").raw
    assert "\x1b[3" not in on_terminal(server, *get, "--no-color").raw
    assert "\x1b[" not in on_terminal(server, "timer", "get", "nobody", "--no-color").raw
    assert "\x1b" not in run(*get).stdout
    assert "\x1b" not in run("timer", "get", "nobody").stderr


def test_programs_get_instants_in_utc(run: Run) -> None:
    run("timer", "create", "utc", "--at", "2036-01-02T03:04:05+01:00", *WHERE)
    assert '"executeAt": "2036-01-02T02:04:05Z"' in run("timer", "get", "utc", "-o", "json").stdout
    assert "executeAt: '2036-01-02T02:04:05Z'" in run("timer", "get", "utc", "-o", "yaml").stdout
