"""`mainspring timer` against a real server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mainspring.client import Client
from mainspring.timers.messages import CreateTimer
from tests.cli.conftest import Run
from tests.support.running_server import Running

CREATE = ("timer", "create", "--callback-url", "http://127.0.0.1:9/", "--at", "2036-01-02T03:04:05+01:00")


def as_json(text: str) -> Any:
    return json.loads(text)


def test_a_timer_is_created_from_options(run: Run) -> None:
    result = run(
        *(*CREATE, "opt-1", "-o", "json", "--payload", '{"n": 1.0}', "--header", "X-Team: blue"),
        *("--label", "team=blue", "--label", "a=b=c", "--delivery", "at-most-once", "--callback-timeout", "2m"),
        *("--retry-max-attempts", "3", "--retry-schedule", "10s,1m", "--retry-on", "5xx", "--retry-on", "network"),
    )
    assert result.exit_code == 0, result.stderr
    timer = as_json(result.stdout)
    assert timer["executeAt"] == "2036-01-02T02:04:05Z"
    assert timer["payload"] == {"n": 1.0}
    assert timer["headers"] == {"X-Team": "blue"}
    assert timer["labels"] == {"team": "blue", "a": "b=c"}
    assert (timer["delivery"], timer["callbackTimeoutSeconds"]) == ("at-most-once", 120.0)
    policy = {"maxAttempts": 3, "schedule": [10.0, 60.0], "retryOn": ["5xx", "network"]}
    assert timer["retryPolicy"] | policy == timer["retryPolicy"]


def test_a_wrong_retry_policy_is_explained_in_words(run: Run) -> None:
    result = run(*CREATE, "opt-2", "--retry-on", "6xx", "--retry-jitter", "2")
    assert result.exit_code == 2
    assert "/retryPolicy/retryOn/0: Expected a status such as 503" in result.stderr
    assert "/retryPolicy/jitter: Expected a number of at most 1" in result.stderr


def test_the_payload_comes_from_a_file_or_stdin(run: Run) -> None:
    Path("body.json").write_text('{"from": "file"}\n')
    result = run(*CREATE, "payload", "--payload", "@body.json", "-o", "json")
    assert as_json(result.stdout)["payload"] == {"from": "file"}
    result = run(*CREATE, "payload", "--payload", "-", "-o", "json", stdin='["stdin"]')
    assert as_json(result.stdout)["payload"] == ["stdin"]


def test_json_yaml_and_table_show_the_same_timer(run: Run) -> None:
    run(*CREATE, "shown", "--payload", '{"when": "2020-01-01"}')
    parsed = as_json(run("timer", "get", "shown", "--output", "json").stdout)
    assert yaml.safe_load(run("timer", "get", "shown", "--output", "yaml").stdout) == parsed
    assert yaml.safe_load(run("--output", "yaml", "timer", "get", "shown").stdout) == parsed
    table = run("timer", "get", "shown").stdout
    assert all(name in table for name in parsed)


def test_what_could_move_a_terminal_is_shown_escaped(run: Run) -> None:
    run(*CREATE, "evil\u200d[red]", "--payload", '"\\u001b[2J"')
    table = run("timer", "list", "--id-prefix", "evil").stdout
    assert "evil\\u200d[red]" in table
    assert "\x1b" not in run("timer", "get", "evil\u200d[red]").stdout


def test_an_update_changes_only_what_is_given(run: Run) -> None:
    run(*CREATE, "upd", "--label", "a=b", "--payload", "1")
    timer = as_json(run("timer", "update", "upd", "--in", "1h", "-o", "json").stdout)
    assert (timer["labels"], timer["payload"], timer["generation"]) == ({"a": "b"}, 1, 2)
    assert run("timer", "update", "upd", "--payload", "2", "--if-generation", "1").exit_code == 5


def test_lists_are_filtered_and_paged(run: Run) -> None:
    for name in ("list-a", "list-b", "list-c"):
        run(*CREATE, name, "--label", f"name={name}")
    page = run("timer", "list", "--id-prefix", "list-", "--limit", "2", "-o", "json")
    assert len(as_json(page.stdout)["timers"]) == 2
    cursor = as_json(page.stdout)["nextCursor"]
    assert f"--cursor {cursor}" in page.stderr
    rest = as_json(run("timer", "list", "--id-prefix", "list-", "--cursor", cursor, "-o", "json").stdout)
    assert (len(rest["timers"]), rest["nextCursor"]) == (1, None)
    found = as_json(run("timer", "list", "--label", "name=list-b", "-o", "json").stdout)
    assert [timer["timerId"] for timer in found["timers"]] == ["list-b"]


def test_park_resume_run_now_and_history(run: Run) -> None:
    run(*CREATE, "life")
    assert as_json(run("timer", "park", "life", "-o", "json").stdout)["state"] == "parked"
    assert as_json(run("timer", "resume", "life", "-o", "json").stdout)["state"] == "scheduled"
    assert run("timer", "run-now", "life").exit_code == 0
    assert run("timer", "history", "life", "--outcome", "failed").exit_code == 0


def test_many_are_deleted_after_a_question(run: Run) -> None:
    for name in ("many-1", "many-2"):
        run(*CREATE, name)
    many = ("timer", "delete", "--id-prefix", "many-", "-o", "json")
    assert as_json(run(*many, "--dry-run").stdout) == {"matched": 2, "changed": 2, "dryRun": True}
    refused = run(*many, stdin="n\n")
    assert refused.exit_code == 1
    assert "Delete 2 timers?" in refused.stderr
    assert as_json(run(*many, stdin="y\n").stdout)["changed"] == 2
    assert as_json(run(*many, "--yes").stdout)["matched"] == 0
    nothing = run(*many)
    assert nothing.stderr == "Nothing to delete: 0 timers matched.\n"
    assert as_json(nothing.stdout) == {"matched": 0, "changed": 0, "dryRun": False}


def test_a_dry_run_and_a_question_count_what_would_change(run: Run) -> None:
    for name in ("some-1", "some-2"):
        run(*CREATE, name)
    run("timer", "park", "some-1")
    some = ("timer", "resume", "--id-prefix", "some-", "-o", "json")
    assert as_json(run(*some, "--dry-run").stdout) == {"matched": 2, "changed": 1, "dryRun": True}
    assert "Resume 1 timer?" in run(*some, stdin="n\n").stderr
    assert as_json(run(*some, "--yes").stdout) == {"matched": 2, "changed": 1, "dryRun": False}
    assert run(*some).stderr == "Nothing to resume: 2 timers matched.\n"


def test_whole_namespaces_need_to_be_meant(run: Run) -> None:
    assert run("timer", "delete").exit_code == 2
    assert run("timer", "park", "x", "--id-prefix", "y").exit_code == 2
    result = run("timer", "delete", "--all", "--namespace", "nowhere", "--dry-run")
    assert result.exit_code == 3


def test_one_timer_is_deleted_without_a_question(run: Run) -> None:
    run(*CREATE, "gone")
    assert run("timer", "delete", "gone").stdout == "deleted gone\n"
    run(*CREATE, "gone")
    assert as_json(run("timer", "delete", "gone", "-o", "json").stdout)["timerId"] == "gone"
    missing = run("timer", "get", "gone")
    assert missing.exit_code == 3
    assert missing.stderr.startswith("Error: Timer ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("x", "--callback-url", "http://127.0.0.1/"),
        ("x", "--callback-url", "http://127.0.0.1/", "--in", "5m", "--at", "2036-01-01T00:00:00Z"),
        ("x", "--callback-url", "http://127.0.0.1/", "--in", "soon"),
        ("x", "--callback-url", "http://127.0.0.1/", "--at", "2036-01-01T00:00:00"),
        ("x", "--callback-url", "http://127.0.0.1/", "--in", "1s", "--payload", "{"),
        ("x", "--callback-url", "http://127.0.0.1/", "--in", "1s", "--payload", "@missing"),
        ("x", "--callback-url", "http://127.0.0.1/", "--in", "1s", "--label", "nothing"),
        ("x", "--in", "1s"),
    ],
)
def test_wrong_usage_is_explained_with_exit_code_two(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("timer", "create", *arguments)
    assert result.exit_code == 2
    assert "Expected" in result.stderr or "Missing option" in result.stderr


def test_wrong_fields_are_named_by_the_server_and_shown(run: Run) -> None:
    result = run(*CREATE, "wrong", "--header", "Host: example.com")
    assert result.exit_code == 2
    assert "/headers/Host" in result.stderr
    assert "Request id:" in result.stderr
    result = run(*CREATE, "x", "--retry-jitter", "7")
    assert result.exit_code == 2
    assert "jitter" in result.stderr


def test_an_update_without_a_change_is_refused_and_leaves_the_generation(run: Run) -> None:
    run(*CREATE, "same")
    result = run("timer", "update", "same")
    assert result.exit_code == 2
    assert "Expected at least one option that changes the timer, got none." in result.stderr
    assert run("timer", "update", "same", "--if-generation", "1").exit_code == 2
    assert as_json(run("timer", "get", "same", "-o", "json").stdout)["generation"] == 1
    result = run("namespace", "update", "default")
    assert result.exit_code == 2
    assert "Expected at least one option that changes the namespace, got none." in result.stderr


def test_an_empty_history_says_whether_there_is_such_a_timer(run: Run) -> None:
    result = run("timer", "history", "nobody")
    assert result.exit_code == 3
    assert "Timer 'nobody' does not exist in namespace 'default', and has no history" in result.stderr
    run(*CREATE, "unsent")
    result = run("timer", "history", "unsent")
    assert (result.exit_code, result.stderr) == (0, "No attempt was found.\n")


def test_people_see_the_retry_policy_in_force_and_programs_what_was_asked_for(run: Run) -> None:
    run("namespace", "create", "patient", "--retry-max-attempts", "3", "--retry-schedule", "10s,1m")
    run(*CREATE, "theirs", "--namespace", "patient")
    table = " ".join(run("timer", "get", "theirs", "--namespace", "patient").stdout.split())
    policy = "3 attempts; waits 10s, 60s, up to 10% more; then park (that of namespace patient)"
    assert f"retryPolicy {policy} " in table
    assert as_json(run("timer", "get", "theirs", "--namespace", "patient", "-o", "json").stdout)["retryPolicy"] is None
    run(*CREATE, "own", "--namespace", "patient", "--retry-max-attempts", "1", "--retry-on-exhausted", "drop")
    own = " ".join(run("timer", "get", "own", "--namespace", "patient").stdout.split())
    assert "retryPolicy 1 attempt; then drop callback" in own


def test_timers_are_counted_by_state(run: Run) -> None:
    run("namespace", "create", "counted", "--shard-count", "2")
    for name in ("a", "b", "c"):
        run(*CREATE, name, "--namespace", "counted")
    run("timer", "park", "c", "--namespace", "counted")
    told = as_json(run("timer", "stats", "--namespace", "counted", "-o", "json").stdout)
    assert (told["scheduled"], told["parked"], told["overdue"], told["countsAreMinimum"]) == (2, 1, 0, False)
    assert told["nextDueAt"] == "2036-01-02T02:04:05Z"
    assert run("timer", "stats", "--namespace", "nowhere").exit_code == 3


def test_a_header_is_given_by_a_short_option_as_often_as_there_are_headers_and_each_once(run: Run) -> None:
    made = as_json(run(*CREATE, "short", "-H", "X-A: 1", "-H", "X-B: 2", "-o", "json").stdout)
    assert made["headers"] == {"X-A": "1", "X-B": "2"}
    twice = run(*CREATE, "short", "-H", "X-A: 1", "-H", "x-a: 2")
    assert (twice.exit_code, "Expected each header once, got 'x-a' again." in twice.stderr) == (2, True)
    twice = run(*CREATE, "short", "--label", "a=1", "--label", "a=2")
    assert (twice.exit_code, "Expected each label once, got 'a' again." in twice.stderr) == (2, True)


@pytest.mark.slow
def test_a_list_goes_on_until_it_finds_something_or_has_looked_at_everything(run: Run, server: Running) -> None:
    beginning = datetime.now(UTC) + timedelta(days=1)
    with Client(server.url, server.token) as client:
        client.namespaces.create("crowd")
        for start in range(0, 22_000, 1000):
            many = [
                CreateTimer(
                    namespace="crowd",
                    timer_id=f"c{n}",
                    execute_at=beginning + timedelta(seconds=n),
                    callback_url="http://127.0.0.1:9/",
                    labels={"last": "yes"} if n == 21_999 else {},
                )
                for n in range(start, start + 1000)
            ]
            assert client.timers.create_batch(many).failed == 0
        assert not client.timers.list(namespace="crowd", labels={"last": "yes"}).timers  # one request is not enough
    found = run("timer", "list", "--namespace", "crowd", "--label", "last=yes", "-o", "json")
    assert [each["timerId"] for each in as_json(found.stdout)["timers"]] == ["c21999"]
    none = run("timer", "list", "--namespace", "crowd", "--label", "last=no")
    assert none.exit_code == 0
    assert "--cursor" not in none.stderr
