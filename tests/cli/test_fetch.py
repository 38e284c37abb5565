"""`mainspring fetch` against a real server and a real target."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run_alone
from tests.support.running_server import clean_environment


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    command = [sys.executable, "-m", "mainspring.testing.target"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment(), text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def counts(target: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{target}/counts", timeout=5) as answer:
        told: dict[str, int] = json.load(answer)
    return told


def test_a_response_is_printed_as_it_is_and_its_status_beside_it(run: Run, target: str) -> None:
    result = run("fetch", "create", f"{target}/status/404?id=c1", "--wait", "--req-id", "c1")
    assert (result.exit_code, result.stdout) == (0, '{"ok":true}')
    assert result.stderr.startswith("404 in ")
    again = run("fetch", "create", f"{target}/status/404?id=c1", "--wait", "--req-id", "c1")
    assert again.stdout == result.stdout
    other = run("fetch", "create", f"{target}/other?id=c1", "--wait", "--req-id", "c1")
    assert (other.exit_code != 0, other.stdout) == (True, "")
    assert "The reqId was used for another request" in other.stderr
    assert "/request/url" in other.stderr
    assert counts(target)["c1"] == 1


def test_the_call_is_made_of_the_options(run: Run, target: str, tmp_path: Path) -> None:
    result = run("fetch", "create", f"{target}/echo", "--wait", "-H", "X-Team: blue", "-d", "q=1")
    told = json.loads(result.stdout)
    assert (told["method"], told["headers"]["x-team"], told["body"]) == ("POST", "blue", "q=1")
    (tmp_path / "body").write_bytes(b"\xff\x00")
    told = json.loads(
        run("fetch", "create", f"{target}/echo", "-X", "PUT", "--body-file", str(tmp_path / "body"), "--wait").stdout
    )
    assert (told["method"], told["body"]) == ("PUT", "\\xff\x00")
    both = run("fetch", "create", target, "-d", "a", "--body-file", str(tmp_path / "body"))
    assert both.exit_code == 2


def test_exit_codes_tell_what_certainly_did_not_happen_from_what_may_have(run: Run, target: str) -> None:
    refused = run("fetch", "create", "http://127.0.0.1:9/", "--wait", "--req-id", "c2")
    assert (refused.exit_code, refused.stdout) == (8, "")
    assert refused.stderr.startswith("failed: ")
    lost = run("fetch", "create", f"{target}/reset", "-X", "POST", "--wait", "--req-id", "c3", "--label", "t=unknown")
    assert lost.exit_code == 9
    assert "may have been changed" in lost.stderr
    assert run("fetch", "wait", "c3").exit_code == 9
    listed = json.loads(run("fetch", "list", "--unknown", "--label", "t=unknown", "-o", "json").stdout)
    assert [fetch["reqId"] for fetch in listed["fetches"]] == ["c3"]
    assert "c3" in run("fetch", "list", "--unknown").stdout
    run("fetch", "create", f"{target}/hang", "-X", "POST", "--req-id", "c40", "--label", "t=cut")
    eventually(lambda: json.loads(run("fetch", "get", "c40", "-o", "json").stdout)["state"] == "running")
    run("fetch", "cancel", "c40")
    eventually(lambda: "c40" in run("fetch", "list", "--unknown", "--label", "t=cut").stdout)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # nothing announces it


def test_a_result_that_did_not_arrive_is_listed_and_delivered_again(run: Run, target: str) -> None:
    gone = ("--result-url", f"{target}/status/410?id=c50-result", "--label", "t=gone")
    run("fetch", "create", f"{target}/?id=c50", "--wait", "--req-id", "c50", *gone)

    def is_given_up() -> bool:
        page = json.loads(run("fetch", "list", "--undelivered", "--label", "t=gone", "-o", "json").stdout)
        return [fetch["delivery"] for fetch in page["fetches"]] == ["failed"]

    eventually(is_given_up)
    dry = run("fetch", "redeliver", "--label", "t=gone", "--dry-run", "-o", "json")
    assert json.loads(dry.stdout) == {"matched": 1, "changed": 1, "dryRun": True}
    declined = run("fetch", "redeliver", "--label", "t=gone", stdin="n\n")
    assert declined.exit_code == 1
    assert counts(target)["c50-result"] == 1
    accepted = run("fetch", "redeliver", "--label", "t=gone", "-o", "json", stdin="y\n")
    assert json.loads(accepted.stdout)["changed"] == 1
    eventually(lambda: counts(target)["c50-result"] == 2)
    eventually(is_given_up)
    one = run("fetch", "redeliver", "c50", "-o", "json")
    assert json.loads(one.stdout) == {"matched": 1, "changed": 1, "dryRun": False}
    assert run("fetch", "redeliver", "--label", "t=nobody").stderr.startswith("No result matches.")
    assert run("fetch", "redeliver").exit_code != 0


def test_a_fetch_is_shown_and_cancelled(run: Run, target: str) -> None:
    created = run("fetch", "create", f"{target}/hang", "--req-id", "c4", "--context", '{"a": 1}', "-o", "json")
    assert json.loads(created.stdout)["context"] == {"a": 1}
    cancelled = json.loads(run("fetch", "cancel", "c4", "-o", "json").stdout)
    assert cancelled["state"] == "cancelled"
    assert "cancelled" in run("fetch", "get", "c4").stdout
    assert run("fetch", "get", "nobody").exit_code == 3


def test_a_wait_may_print_the_whole_fetch(run: Run, target: str) -> None:
    result = run("fetch", "create", f"{target}/echo", "--wait", "--timeout", "5s", "--output", "json")
    told = json.loads(result.stdout)
    assert (told["state"], told["timeoutSeconds"], told["result"]["response"]["status"]) == ("succeeded", 5.0, 200)


def test_stats_name_who_makes_the_calls(run: Run) -> None:
    told = json.loads(run("fetch", "stats", "-o", "json").stdout)
    assert [executor["pool"] for executor in told["executors"]] == ["in-process"]


def test_an_executor_needs_a_store_that_a_server_can_share() -> None:
    assert run_alone("executor", "--store", "memory://").exit_code == 2
    assert run_alone("executor", "--pool", "in-process").exit_code == 2


def test_the_body_comes_from_text_a_file_or_stdin(run: Run, target: str) -> None:
    Path("body.txt").write_bytes(b"\xffbytes")
    for data, stdin, expected in (("q=7", "", "q=7"), ("-", "piped", "piped")):
        result = run("fetch", "create", f"{target}/echo", "-d", data, "--wait", stdin=stdin)
        assert expected in result.stdout, result.stderr
    result = run("fetch", "create", f"{target}/ok", "-d", "@body.txt", "--wait")
    assert result.exit_code == 0, result.stderr
    result = run("fetch", "create", f"{target}/ok", "-d", "@missing.txt")
    assert result.exit_code == 2
    assert "Expected a readable file, got missing.txt: No such file" in result.stderr


def test_cancelling_what_has_ended_says_so(run: Run, target: str) -> None:
    run("fetch", "create", f"{target}/ok", "--wait", "--req-id", "over")
    result = run("fetch", "cancel", "over")
    assert (result.exit_code, result.stderr) == (0, "It had already ended: nothing was cancelled.\n")
