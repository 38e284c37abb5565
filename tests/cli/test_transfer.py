"""Import and export: round trips change nothing, wrong lines are named, nothing is left half."""

from __future__ import annotations

import csv
import io
import json
import stat
import string
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mainspring.cli.lines import Writer, read_lines
from mainspring.model import Delivery, RetryPolicy, State
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.wire.instants import to_instant
from tests.cli.conftest import Run, run_alone

LINE = {"timerId": "t", "executeAt": "2036-01-01T00:00:00Z", "callbackUrl": "https://example.com/"}


def counts(text: str) -> dict[str, int]:
    """What an import says, without its dry run."""
    told: dict[str, int] = json.loads(text)
    return {name: count for name, count in told.items() if count and name != "dryRun"}


def jsonl(*lines: Mapping[str, object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def tricky(namespace: str) -> str:
    return jsonl(
        LINE | {"namespace": namespace, "timerId": "plain"},
        LINE
        | {
            "namespace": namespace,
            "timerId": 'odd ,";😀 \u2003 =1+1',
            "executeAt": "2036-01-01T00:00:00.123Z",
            "payload": {"text": 'a\nb,"c" \u2028', "n": 1.0},
            "headers": {"X-A": "1,2"},
            "labels": {"k": "v;w"},
            "retryPolicy": {"maxAttempts": 3, "schedule": [1, 2.5]},
            "callbackTimeoutSeconds": 5,
            "delivery": "at-most-once",
        },
        LINE | {"namespace": namespace, "timerId": "default-policy", "retryPolicy": {}, "payload": "text"},
    )


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_secrets_are_exported_when_asked_for_and_then_a_round_trip_keeps_them(run: Run, form: str) -> None:
    run("namespace", "create", f"secret-{form}", "--shard-count", "2")
    url = "https://example.com/?token=t-very-secret"
    line = LINE | {"namespace": f"secret-{form}", "headers": {"Authorization": "h-very-secret"}, "callbackUrl": url}
    Path("first.jsonl").write_text(jsonl(line))
    assert run("timer", "import", "first.jsonl").exit_code == 0
    select = ("--namespace", f"secret-{form}")
    without = run("timer", "export", f"without.{form}", *select)
    assert "very-secret" not in Path(f"without.{form}").read_text()
    assert "1 timer with secrets, which were left out" in without.stderr
    refused = run("timer", "import", f"without.{form}")
    assert refused.exit_code == 1
    assert "/headers/Authorization: Expected a secret, got ***" in refused.stderr
    assert "/callbackUrl: Expected a secret, got ***" in refused.stderr
    Path(f"one.{form}").touch(0o644)
    assert run("timer", "export", f"one.{form}", *select, "--secrets").exit_code == 0
    assert stat.S_IMODE(Path(f"one.{form}").stat().st_mode) == 0o600
    assert run("timer", "delete", *select, "--all", "--yes").exit_code == 0
    assert run("timer", "import", f"one.{form}").exit_code == 0
    assert run("timer", "export", f"two.{form}", *select, "--secrets").exit_code == 0
    assert Path(f"one.{form}").read_bytes() == Path(f"two.{form}").read_bytes()
    assert Path(f"one.{form}").read_text().count("very-secret") == 2


def test_secrets_are_not_exported_to_stdout(run: Run) -> None:
    refused = run("timer", "export", "--secrets")
    assert (refused.exit_code, "Expected a FILE for --secrets" in refused.stderr) == (2, True)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_export_import_export_gives_the_same_file(run: Run, form: str) -> None:
    run("namespace", "create", f"round-{form}", "--shard-count", "2")
    Path("first.jsonl").write_text(tricky(f"round-{form}"))
    assert run("timer", "import", "first.jsonl").exit_code == 0
    select = ("--namespace", f"round-{form}")
    assert run("timer", "export", f"one.{form}", *select).exit_code == 0
    assert run("timer", "delete", *select, "--all", "--yes").exit_code == 0
    imported = run("timer", "import", f"one.{form}", "-o", "json")
    assert counts(imported.stdout) == {"lines": 3, "created": 3}
    assert run("timer", "export", f"two.{form}", *select).exit_code == 0
    assert Path(f"one.{form}").read_bytes() == Path(f"two.{form}").read_bytes()
    assert sorted(Path().glob("*.partial")) == []


def test_a_namespace_that_does_not_exist_is_told_once(run: Run) -> None:
    lines = "".join(json.dumps(LINE | {"timerId": f"lost-{number}"}) + "\n" for number in range(3))
    told = run("timer", "import", "-", "--namespace", "nowhere", stdin=lines)
    assert (told.exit_code, told.stderr.count("Namespace 'nowhere' does not exist")) == (3, 1), told.stderr


def test_many_timers_go_in_several_batches_and_come_out_of_a_pipe(run: Run) -> None:
    run("namespace", "create", "pipe")
    generated = run("dev", "generate", "1100", "--namespace", "pipe", "--seed", "7", "--within", "1d")
    assert len(generated.stdout.splitlines()) == 1100
    imported = run("timer", "import", "-", "-o", "json", stdin=generated.stdout)
    assert json.loads(imported.stdout)["created"] == 1100
    exported = run("timer", "export", "--namespace", "pipe")
    assert meanings(exported.stdout) == meanings(generated.stdout)


def meanings(text: str) -> list[tuple[object, ...]]:
    lines = read_lines(io.BytesIO(text.encode()), "jsonl")
    return sorted(meaning(line.timer) for line in lines if line.timer)


def test_large_payloads_are_sent_in_requests_that_the_server_takes(run: Run) -> None:
    lines = [LINE | {"timerId": f"large-{number}", "payload": "x" * 100_000} for number in range(20)]
    result = run("timer", "import", "-", "-o", "json", stdin=jsonl(*lines))
    assert json.loads(result.stdout)["created"] == 20, result.stderr


def test_wrong_lines_are_named_and_the_others_created(run: Run) -> None:
    text = "\n".join(
        [
            json.dumps(LINE | {"timerId": "good-1"}),
            "not json",
            "",
            json.dumps(LINE | {"timerId": "bad", "colour": "red"}),
            json.dumps(LINE | {"timerId": "bad", "delaySeconds": 5}),
            json.dumps(LINE | {"timerId": "bad", "callbackUrl": "ftp://example.com/"}),
            json.dumps(LINE | {"timerId": "good-2"}),
        ]
    )
    result = run("timer", "import", "-", "-o", "json", stdin=text)
    assert result.exit_code == 1
    assert counts(result.stdout) == {"lines": 6, "created": 2, "failed": 4}
    named = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert sorted(named) == ["line 2", "line 4", "line 5", "line 6"]
    assert "line 4: /colour: unknown field\n" in result.stderr
    assert result.stderr.count("got something else") == 1, "what is wrong with a field is said once"
    assert run("timer", "get", "bad").exit_code == 3


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_parked_timers_are_exported_only_when_asked_for(run: Run, form: str) -> None:
    name = f"parked-{form}"
    run("namespace", "create", name, "--shard-count", "2")
    lines = jsonl(*(LINE | {"namespace": name, "timerId": timer_id} for timer_id in ("runs", "waits")))
    assert run("timer", "import", "-", stdin=lines).exit_code == 0
    assert run("timer", "park", "waits", "--namespace", name).exit_code == 0

    def exported(*flags: str) -> tuple[set[str], str]:
        result = run("timer", "export", f"out.{form}", "--namespace", name, *flags)
        assert result.exit_code == 0
        with Path(f"out.{form}").open("rb") as file:
            found = {line.timer.timer_id for line in read_lines(file, form) if line.timer}  # type: ignore[arg-type]
        return found, result.stderr

    found, said = exported()
    assert found == {"runs"}
    assert "1 parked timer left out" in said
    found, said = exported("--state", "parked")
    assert found == {"waits"}
    assert "left out" not in said
    found, said = exported("--include-parked")
    assert found == {"runs", "waits"}
    assert run("timer", "import", f"out.{form}").exit_code == 0
    state = json.loads(run("timer", "get", "waits", "--namespace", name, "-o", "json").stdout)["state"]
    assert state == "scheduled", "as --help says"


def test_an_interrupted_import_says_where_to_go_on(run: Run) -> None:
    lines = jsonl(*(LINE | {"timerId": f"go-on-{number}"} for number in range(3)))
    failed = run_alone("--url", "http://127.0.0.1:9", "--token", "t", "timer", "import", "-", stdin=lines)
    assert failed.exit_code == 6
    assert "--from-line 1" in failed.stderr
    rest = run("timer", "import", "-", "--from-line", "3", "-o", "json", stdin=lines)
    assert counts(rest.stdout) == {"lines": 1, "created": 1}
    assert run("timer", "get", "go-on-1").exit_code == 3


WRONG: dict[str, dict[str, object]] = {
    "a number that is none": {"delaySeconds": "soon"},
    "two times": {"delaySeconds": 5},
    "a namespace that is none": {"namespace": "nowhere"},
    "a destination that is none": {"callbackUrl": "ftp://example.com/"},
    "a destination that is forbidden": {"callbackUrl": "http://169.254.169.254/"},
    "a header that we write": {"headers": {"Content-Length": "5"}},
    "a secret that is hidden": {"headers": {"Authorization": "***"}},
    "a name that hides something": {"timerId": "a\u202eb"},
    "a payload that is too large": {"payload": "x" * 300_000},
}


def test_a_dry_run_refuses_the_lines_that_an_import_refuses_and_creates_none(run: Run) -> None:
    lines = jsonl(LINE | {"timerId": "dry"}, *(LINE | wrong for wrong in WRONG.values()))
    dry = run("timer", "import", "-", "--dry-run", "-o", "json", stdin=lines)
    assert run("timer", "get", "dry").exit_code == 3
    wet = run("timer", "import", "-", "-o", "json", stdin=lines)
    assert dry.exit_code == wet.exit_code == 1
    assert dry.stderr == wet.stderr
    assert counts(dry.stdout) == counts(wet.stdout) == {"lines": 1 + len(WRONG), "created": 1, "failed": len(WRONG)}
    assert (json.loads(dry.stdout)["dryRun"], json.loads(wet.stdout)["dryRun"]) == (True, False)


def test_an_import_tells_created_timers_from_replaced_ones_and_takes_a_namespace(run: Run) -> None:
    run("namespace", "create", "into", "--shard-count", "2")
    lines = jsonl(LINE | {"timerId": "a", "namespace": "elsewhere"}, LINE | {"timerId": "b"})
    into = ("timer", "import", "-", "--namespace", "into", "-o", "json")
    assert counts(run(*into, "--dry-run", stdin=lines).stdout) == {"lines": 2, "created": 2}
    assert counts(run(*into, stdin=lines).stdout) == {"lines": 2, "created": 2}
    lines += jsonl(LINE | {"timerId": "c"}, LINE | {"timerId": "c"})
    told = {"lines": 4, "created": 1, "replaced": 3}
    assert counts(run(*into, "--dry-run", stdin=lines).stdout) == told
    assert counts(run(*into, stdin=lines).stdout) == told
    listed = json.loads(run("timer", "list", "--namespace", "into", "-o", "json").stdout)["timers"]
    assert {timer["timerId"] for timer in listed} == {"a", "b", "c"}


def test_lines_of_csv_are_told_by_their_numbers(run: Run) -> None:
    Path("timers.csv").write_text(
        "timerId,delaySeconds,callbackUrl,payload\n"
        "a,5,https://example.com/,\n"
        'b,soon,https://example.com/,"{}"\n'
        "c,5,https://example.com/,{\n"
        "d,5\n"
    )
    result = run("timer", "import", "timers.csv", "--dry-run", "-o", "json")
    assert result.exit_code == 1
    assert counts(result.stdout) == {"lines": 4, "created": 1, "failed": 3}
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["line 3", "line 4", "line 5"]


def test_a_file_that_is_not_what_it_seems_is_refused() -> None:
    Path("a.csv").write_text("timerId,colour\nx,red\n")
    refused = run_alone("timer", "import", "a.csv", "--dry-run")
    assert (refused.exit_code, "colour" in refused.stderr) == (2, True)
    Path("a.csv").write_text("timerId,callback_url\nx,red\n")
    assert "got callback_url; did you mean callbackUrl?" in run_alone("timer", "import", "a.csv", "--dry-run").stderr
    Path("b.csv").write_bytes(b"timerId,callbackUrl\n\xff\xfe,x\n")
    assert run_alone("timer", "import", "b.csv", "--dry-run").exit_code == 2
    Path("c.csv").write_text("")
    assert run_alone("timer", "import", "c.csv", "--dry-run").exit_code == 2
    assert run_alone("timer", "import", "missing.csv").exit_code == 2


def test_a_failed_export_leaves_no_file() -> None:
    result = run_alone("--url", "http://127.0.0.1:9", "--token", "t", "timer", "export", "out.jsonl")
    assert result.exit_code == 6
    assert list(Path().iterdir()) == []


TEXT = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable() or "\n" in text)
VIEWS = st.builds(
    TimerView,
    namespace=st.text(string.ascii_letters, min_size=1, max_size=5),
    timer_id=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    execute_at=st.integers(0, 4_000_000_000_000).map(to_instant),
    callback_url=st.just("https://example.com/?a=1,2&b=\"'"),
    payload_json=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("aä\n\",'", max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    ).map(lambda value: Raw(json.dumps(value, indent=1).encode())),
    headers=st.dictionaries(st.text(string.ascii_letters, min_size=1), st.text('a,"', max_size=5), max_size=2),
    retry_policy=st.sampled_from([None, RetryPolicy(), RetryPolicy(max_attempts=2, schedule=(0.5,))]),
    callback_timeout_seconds=st.sampled_from([30.0, 1.0, 2.5]),
    delivery=st.sampled_from(Delivery),
    labels=st.dictionaries(st.text("k=", min_size=1, max_size=5), st.text("v\n;", max_size=5), max_size=2),
    state=st.just(State.SCHEDULED),
    next_attempt_at=st.none(),
    attempts=st.just(0),
    generation=st.just(1),
    delivery_id=st.just("m"),
    created_at=st.just(to_instant(0)),
    updated_at=st.just(to_instant(0)),
    last_outcome=st.none(),
)


def meaning(timer: CreateTimer | TimerView) -> tuple[object, ...]:
    payload = timer.payload
    if isinstance(timer, CreateTimer):
        payload = msgspec.json.decode(payload) if isinstance(payload, Raw) else None
    shared = (timer.namespace, timer.timer_id, timer.execute_at, timer.callback_url, timer.headers, timer.labels)
    return (*shared, payload, timer.retry_policy, timer.callback_timeout_seconds, timer.delivery)


@settings(max_examples=60, deadline=None)
@given(views=st.lists(VIEWS, max_size=4), form=st.sampled_from(["jsonl", "csv"]))
def test_what_is_written_is_read_back_the_same(views: list[TimerView], form: str) -> None:
    chosen = "csv" if form == "csv" else "jsonl"
    file = io.BytesIO()
    writer = Writer(file, chosen)  # type: ignore[arg-type]
    for view in views:
        writer.write(view)
    file.seek(0)
    lines = list(read_lines(file, chosen))  # type: ignore[arg-type]
    assert [line.problem for line in lines] == [None] * len(views)
    assert [meaning(line.timer) for line in lines if line.timer] == [meaning(view) for view in views]
    if form == "csv":
        assert len(list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))) == len(views) + 1
