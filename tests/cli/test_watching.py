"""Lists that are shown again and again, and entries that are shown as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from mainspring.cli.globals import Globals
from mainspring.cli.watching import SECONDS, Pause, Stream, follow, watch
from mainspring.errors import InvalidInput, NetworkError
from mainspring.timers.messages import OutcomeView
from tests.cli.conftest import Run, run_alone
from tests.cli.terminal import interrupted_when, terminal
from tests.support.running_server import Running

FAR = ("--at", "2036-01-02T03:04:05Z", "--callback-url", "http://127.0.0.1:9/")


def rounds(count: int) -> tuple[Pause, list[float]]:
    """A pause that takes no time, and that somebody interrupts after so many."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == count:
            raise KeyboardInterrupt

    return pause, waits


def test_a_list_that_is_piped_is_printed_again_only_if_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    states = iter(["a", "a", "b", "b"])
    pause, waits = rounds(4)
    watch(lambda: next(states), print, pause=pause)
    assert capsys.readouterr().out == "a\n\nb\n"
    assert waits == [SECONDS] * 4


def test_a_server_that_is_away_for_a_while_is_waited_for_and_a_wrong_question_is_not() -> None:
    def answers() -> Iterator[list[str]]:
        yield ["a"]
        raise NetworkError("nobody there")

    given = answers()
    shown: list[str] = []
    pause, _ = rounds(2)
    follow(lambda: next(given), shown.extend, key=str, pause=pause)
    assert shown == ["a"]

    def refused() -> list[str]:
        raise InvalidInput("what?")

    def away() -> list[str]:
        raise NetworkError("nobody there")

    with pytest.raises(InvalidInput):
        follow(refused, shown.extend, key=str)
    with pytest.raises(NetworkError):
        follow(away, shown.extend, key=str)


def test_what_was_known_is_not_shown_again_and_what_has_changed_is() -> None:
    looks = iter([["b", "a"], ["c", "b"], ["c", "B"]])
    shown: list[list[str]] = []
    pause, _ = rounds(3)
    follow(lambda: next(looks), lambda new: shown.append([*new]), key=str, pause=pause)
    assert shown == [["a", "b"], ["c"], ["B"]]


def test_a_stream_keeps_the_width_of_its_columns_and_has_a_form_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def entry(detail: str) -> OutcomeView:
        return OutcomeView(outcome="failed", at=datetime(2036, 1, 1, tzinfo=UTC), status=500, detail=detail)  # type: ignore[arg-type]

    table = Stream(("detail", "status"), Globals())
    table.show([entry("a long detail"), entry("b")])
    table.show([entry("c")])
    expected = ["detail         status", "a long detail  500", "b              500", "c              500"]
    assert capsys.readouterr().out.splitlines() == expected
    Stream(("detail",), Globals(output="json")).show([entry("a"), entry("b")])
    assert [json.loads(line)["detail"] for line in capsys.readouterr().out.splitlines()] == ["a", "b"]
    Stream(("detail",), Globals(output="yaml")).show([entry("a")])
    assert capsys.readouterr().out.startswith("---\noutcome: failed\n")


@pytest.mark.slow
def test_a_watched_list_shows_what_changes_until_it_is_interrupted(run: Run, server: Running) -> None:
    run("namespace", "create", "watched", "--shard-count", "2")
    with terminal(server, "timer", "list", "--watch", "-n", "watched") as shown:
        deadline = time.monotonic() + 20
        while "timerId" not in shown.text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run("timer", "create", "new-one", "-n", "watched", *FAR)
        interrupted_when(shown, lambda text: "new-one" in text)
    assert shown.process.returncode == 0
    assert "every 2 s until Ctrl-C" in shown.text
    assert "Traceback" not in shown.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "act"),
    [
        (("timer", "history", "followed"), ("timer", "run-now", "followed")),
        (("job", "runs", "followed"), ("job", "trigger", "followed")),
        (("fetch", "list"), ("fetch", "create", "http://127.0.0.1:9/", "--wait")),
    ],
)
def test_what_is_followed_is_shown_as_it_comes(
    run: Run, server: Running, arguments: tuple[str, ...], act: tuple[str, ...]
) -> None:
    once = ("--retry-max-attempts", "1")
    run("timer", "create", "followed", *FAR, *once)
    run("job", "create", "followed", "0 0 29 2 *", "--callback-url", "http://127.0.0.1:9/", *once)
    with terminal(server, *arguments, "--follow", columns=200) as shown:
        deadline = time.monotonic() + 20
        while not any(word in shown.text for word in ("state", "outcome", "waiting until Ctrl-C")):
            assert time.monotonic() < deadline, shown.text
            time.sleep(0.05)
        run(*act)
        interrupted_when(shown, lambda text: "failed" in text)
    assert shown.process.returncode == 0
    assert "Traceback" not in shown.text
    assert shown.text.count("startedAt") <= 1, "the header comes once"
    assert " ago)" not in shown.text, "which would not be true for long"


@pytest.mark.parametrize("command", [("timer", "history", "x"), ("job", "runs"), ("fetch", "list")])
def test_what_is_followed_has_no_pages(command: tuple[str, ...]) -> None:
    result = run_alone(*command, "--follow", "--cursor", "x")
    assert (result.exit_code, "Expected one of --cursor and --follow, got both." in result.stderr) == (2, True)


@pytest.mark.slow
def test_whoever_follows_fetches_and_sees_none_is_told_how_far_back_they_were_looked_for(server: Running) -> None:
    with terminal(server, "fetch", "list", "--follow", "--unknown", "--label", "of=nobody") as shown:
        interrupted_when(shown, lambda text: "Ctrl-C" in text)
    assert "Nothing in the last minute, and --since looks further back; waiting until Ctrl-C." in shown.text
    assert shown.process.returncode == 0, shown.text
