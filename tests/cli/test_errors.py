"""What is said when something is wrong, and the exit codes that programs go by."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run_alone
from tests.cli.terminal import environment_of, interrupted_when, terminal
from tests.support.running_server import COMMAND, Running, clean_environment

LINE = {"executeAt": "2036-01-01T00:00:00Z", "callbackUrl": "https://example.com/"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("timer", "create", "x", "--in", "1d", "--callback-url", "http://127.0.0.1:9/", "--header", "Host: a"),
        ("timer", "create", "x", "--in", "1d", "--callback-url", "http://10.0.0.1/"),
        ("timer", "create", "x" * 300, "--in", "1d", "--callback-url", "http://127.0.0.1:9/"),
        ("timer", "create", "x", "--in", "1d", "--callback-url", "http://127.0.0.1:9/", "--retry-jitter", "7"),
        ("timer", "list", "--cursor", "nonsense"),
        ("job", "create", "x", "61 * * * *", "--callback-url", "http://127.0.0.1:9/"),
        ("namespace", "create", "a b"),
        ("fetch", "create", "ftp://example.com/"),
        ("--token", "not ascii \u00e4", "timer", "list"),
    ],
)
def test_what_is_said_wrong_gives_exit_code_two_whoever_notices(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("Traceback")) == (2, 0), result.stderr


def test_a_private_target_names_the_flag_that_opens_it(run: Run) -> None:
    for arguments in (("timer", "create", "x", "--in", "1d", "--callback-url"), ("fetch", "create")):
        result = run(*arguments, "http://10.1.2.3/")
        assert "which is private; the setting allow_targets (--allow-target 10.1.2.3) opens it" in result.stderr


def test_a_missing_token_names_the_data_directory(server: Running) -> None:
    result = run_alone("--url", server.url, "timer", "list")
    assert (result.exit_code, "MAINSPRING_DATA_DIR" in result.stderr) == (4, True)


def test_a_data_directory_that_does_not_exist_is_named(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DATA_DIR", "/nope")
    result = run_alone("--url", server.url, "timer", "list")
    assert (result.exit_code, "does not exist: /nope" in result.stderr) == (4, True), result.stderr


@pytest.mark.parametrize(
    ("before", "after"), [(("--token", "a-wrong-one-0123456789"), ()), ((), ("--token", "a-wrong-one-0123456789"))]
)
def test_a_wrong_token_is_told_where_it_came_from(run: Run, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    result = run(*before, "timer", "list", *after)
    assert "The token was taken from --token. Is it the one of this server?" in result.stderr
    assert (result.exit_code, "MAINSPRING_DATA_DIR" in result.stderr) == (4, False)


@pytest.mark.parametrize("option", ["--url", "--token", "--token-file"])
def test_an_empty_option_is_not_one_that_was_left_out(run: Run, option: str) -> None:
    for arguments in ((option, "", "timer", "list"), ("timer", "list", option, "")):
        result = run(*arguments)
        assert f"Expected a value for {option}, got an empty one." in result.stderr
        assert result.exit_code == 2


def test_the_url_of_a_server_is_not_taken_for_that_of_a_callback(run: Run) -> None:
    result = run("timer", "create", "x", "--in", "1d", "--url", "http://127.0.0.1:9/")
    assert (result.exit_code, "--url is the server. Set the target of the timer with" in result.stderr) == (2, True)
    assert "Missing option '--callback-url'." in run("timer", "create", "x", "--in", "1d").stderr


def test_options_for_all_commands_stand_before_or_after_the_command(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    for arguments in (("-v", "--no-color", "timer", "list"), ("timer", "list", "-v", "--no-color")):
        caplog.clear()
        logging.getLogger("mainspring.client").setLevel(logging.NOTSET)
        assert run(*arguments).exit_code == 0
        assert "/v1/timers/list" in caplog.text


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("timer", "lst"), "No such command 'lst'. Did you mean 'list'?"),
        (("job", "triger"), "No such command 'triger'. Did you mean 'trigger'?"),
        (("timer", "list", "--sate", "parked"), "Did you mean one of: '--state',"),
        (("timer", "list", "--namespac", "x"), "No such option '--namespac'. Did you mean '--namespace'?"),
        (("--outpt", "json", "timer", "list"), "No such option '--outpt'. Did you mean '--output'?"),
        (("timer", "show", "x"), "No such command 'show'. Did you mean 'get'?"),
        (("timer", "rm", "x"), "No such command 'rm'. Did you mean 'delete'?"),
        (("timer", "cancel", "x"), "No such command 'cancel'. Did you mean 'delete'?"),
        (("key", "rm", "x", "y"), "No such command 'rm'. Did you mean 'forget'?"),
        (("job", "run", "x"), "No such command 'run'. Did you mean 'trigger'?"),
        (("job", "history", "x"), "No such command 'history'. Did you mean 'runs'?"),
        (("job", "create", "x", "@daily", "--tz", "UTC"), "No such option '--tz'. Did you mean '--timezone'?"),
        (("timer", "list", "--state", "parkd"), "'parked'"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(typed: tuple[str, ...], meant: str) -> None:
    result = run_alone(*typed)
    assert (result.exit_code, meant in result.stderr) == (2, True), result.stderr


def test_a_mistyped_field_is_answered_with_the_one_that_was_meant_wherever_it_is(run: Run) -> None:
    line = json.dumps({**LINE, "timer_id": "x", "label": {}})
    told = run("timer", "import", "-", stdin=line).stderr
    assert "/timer_id: unknown field; did you mean timerId?" in told
    assert "/label: unknown field; did you mean labels?" in told
    told = run("timer", "import", "-", stdin='{"id": "x", "url": "https://example.com/"}').stderr
    assert "/id: unknown field; did you mean timerId?" in told
    assert "/url: unknown field; did you mean callbackUrl?" in told
    told = run("job", "apply", "-", stdin='[jobs.a]\ncron = "@daily"\ncallbackUrl = "https://example.com/"\n').stderr
    assert "/jobs/a/cron: unknown field; did you mean schedule?" in told
    assert "/jobs/a/callbackUrl: unknown field; did you mean url?" in told
    told = run("job", "apply", "-", stdin='[jobs.a]\nschedule = "@daily"\ntimezon = "UTC"\n').stderr
    assert "/jobs/a/timezon: unknown field; did you mean timezone?" in told


@pytest.mark.parametrize(
    "arguments", [("timer", "list"), ("timer", "list", "-o", "json"), ("timer", "export"), ("admin", "metrics")]
)
def test_an_output_without_room_is_an_error_and_no_traceback(
    run: Run, server: Running, arguments: tuple[str, ...]
) -> None:
    run("timer", "create", "there", "--in", "1d", "--callback-url", "http://127.0.0.1:9/")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
            env=environment_of(server),
        )
    expected = "Error: The output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize("arguments", [("timer", "--help"), ("--help",), ("--version",)])
def test_help_without_room_is_no_traceback(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
            env=clean_environment(),
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", ("timer", "list"), 0),
        (">&-", ("timer", "stats", "-o", "json"), 0),
        ("<&-", ("timer", "create", "x", "--in", "1d", "--callback-url", "http://127.0.0.1:9/", "--payload", "-"), 2),
        ("<&-", ("timer", "import", "-"), 0),
        ("2>&-", ("timer", "get", "nobody"), 3),
    ],
)
def test_a_closed_stream_is_no_traceback(server: Running, closed: str, arguments: tuple[str, ...], code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment_of(server),
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_a_question_that_nobody_can_answer_names_the_option_that_answers_it(run: Run) -> None:
    run("timer", "create", "asked", "--in", "1d", "--callback-url", "http://127.0.0.1:9/")
    result = run("timer", "delete", "--id-prefix", "asked")
    assert (result.exit_code, "give --yes" in result.stderr, "Aborted" in result.stderr) == (2, True, False)
    assert run("timer", "delete", "--id-prefix", "asked", stdin="n\n").exit_code == 1
    assert run("timer", "delete", "--id-prefix", "asked", stdin="y\n").exit_code == 0


@pytest.mark.slow
def test_an_interrupted_question_ends_with_130(run: Run, server: Running) -> None:
    run("timer", "create", "hesitant", "--in", "1d", "--callback-url", "http://127.0.0.1:9/")
    with terminal(server, "timer", "delete", "--id-prefix", "hesitant") as shown:
        interrupted_when(shown, lambda text: "[y/N]" in text)
    assert shown.process.returncode == 130, shown.text
    assert run("timer", "delete", "hesitant").exit_code == 0


def test_what_the_server_misses_is_told_by_the_names_of_the_options(run: Run) -> None:
    six = ("*/10 * * * * *", "--callback-url", "http://127.0.0.1:9/")
    for arguments in (("job", "create", "six", *six), ("job", "preview", six[0])):
        assert "got 6; set --seconds to allow" in run(*arguments).stderr
    run("namespace", "create", "held", "--shard-count", "2")
    run("timer", "create", "holder", "-n", "held", "--in", "1d", "--callback-url", "http://127.0.0.1:9/")
    refused = run("namespace", "delete", "held", "--yes")
    assert (refused.exit_code, "or give --force to delete them with it" in refused.stderr) == (5, True), refused.stderr
    refused = run("fetch", "redeliver", "--yes")
    assert (refused.exit_code, "or --all, got none" in refused.stderr) == (2, True), refused.stderr


def test_choices_are_listed_on_one_line() -> None:
    assert "'. Choose from: bash, zsh, fish\n" in run_alone("completion").stderr


@pytest.mark.slow
def test_an_import_that_is_interrupted_says_where_to_continue_and_ends_with_130(run: Run, server: Running) -> None:
    lines = "".join(json.dumps({**LINE, "timerId": f"cut-{number}"}) + "\n" for number in range(700))
    with subprocess.Popen(
        [*COMMAND, "timer", "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_of(server),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(lines.encode())
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while run("timer", "get", "cut-499").exit_code:
            assert time.monotonic() < deadline, "the first batch is sent when there is a line behind it"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        told = process.stderr.read().decode()
    assert told.endswith("500 timers created. To continue: --from-line 501\n")
    assert "Traceback" not in told
    rest = run("timer", "import", "-", "--from-line", "501", "-o", "json", stdin=lines)
    assert json.loads(rest.stdout)["created"] == 200


def test_an_import_that_finds_nonsense_says_where_to_continue(run: Run) -> None:
    rows = "".join(f"row-{number},2036-01-01T00:00:00Z,https://example.com/\n" for number in range(600))
    Path("cut.csv").write_bytes(f"timerId,executeAt,callbackUrl\n{rows}".encode() + b"\xff\n")
    result = run("timer", "import", "cut.csv")
    assert result.exit_code == 2
    assert "To continue: --from-line " in result.stderr
