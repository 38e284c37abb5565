"""`mainspring job` against a real server: one job at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mainspring.cli.job_runs import duration_text
from mainspring.clock import SystemClock
from mainspring.stores import store_from_url
from tests.cli.conftest import Run
from tests.support.running_server import Running

URL = "http://127.0.0.1:9/"
NOWHERE = ("--callback-url", URL)
NEVER = "0 0 29 2 *"
"""So rarely that no test sees it."""


def as_json(text: str) -> Any:
    return msgspec.json.decode(text)


class FailsFirst(BaseHTTPRequestHandler):
    """Answers 500 to the first attempt of everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500 if self.headers["mainspring-attempt"] == "1" else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FailsFirst) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(10)


def create(run: Run, name: str, *options: str) -> Any:
    result = run("job", "create", name, NEVER, *NOWHERE, "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    return as_json(result.stdout)


def test_a_job_is_created_with_all_its_options_and_shown_in_every_form(run: Run) -> None:
    job = create(
        run,
        *("opt", "--timezone", "Europe/Berlin", "--method", "PUT", "--header", "X-Team: blue", "--body", '{"n": 1.0}'),
        *("--timeout", "2m", "--overlap", "bufferOne", "--catchup", "all", "--catchup-window", "2h"),
        *("--on-overlap", "both", "--jitter", "30s", "--start-at", "2027-01-01T00:00:00Z", "--max-runs", "7"),
        *("--label", "team=blue", "--retry-max-attempts", "5", "--paused", "--note", "not yet", "--by", "ann"),
    )
    assert (job["schedule"], job["timezone"], job["method"], job["body"]) == (NEVER, "Europe/Berlin", "PUT", {"n": 1.0})
    assert (job["timeoutSeconds"], job["overlap"], job["catchup"]) == (120.0, "bufferOne", "all")
    assert (job["catchupWindowSeconds"], job["dst"]) == (7200.0, {"onGap": "shift", "onOverlap": "both"})
    assert (job["jitterSeconds"], job["startAt"], job["maxRuns"]) == (30.0, "2027-01-01T00:00:00Z", 7)
    assert (job["labels"], job["retryPolicy"]["maxAttempts"]) == ({"team": "blue"}, 5)
    assert (job["state"], job["note"], job["by"]) == ("paused", "not yet", "ann")
    assert yaml.safe_load(run("job", "get", "opt", "-o", "yaml").stdout) == job
    table = run("job", "get", "opt").stdout
    assert all(name in table for name in job)


def test_a_name_that_exists_is_a_conflict_and_one_that_does_not_is_not_found(run: Run) -> None:
    create(run, "twice")
    assert run("job", "create", "twice", "@daily", *NOWHERE).exit_code == 5
    assert run("job", "get", "nobody").exit_code == 3
    assert run("job", "delete", "twice").exit_code == 0
    assert run("job", "delete", "twice").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("0 0 30 2 *", *NOWHERE), "/schedule"),
        (("0 0 9 * * *", *NOWHERE), "seconds"),
        (("@daily", *NOWHERE, "--timezone", "Europe/Berln"), "Europe/Berlin"),
        (("@daily",), "job_base_url"),
    ],
)
def test_what_is_wrong_with_a_job_is_said_and_the_exit_code_is_two(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    result = run("job", "create", "wrong", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_url_and_a_route_together_are_a_wrong_use(run: Run) -> None:
    assert run("job", "create", "wrong", "@daily", *NOWHERE, "--route", "/x").exit_code == 2


def test_an_update_changes_what_is_given_and_clears_what_is_named(run: Run) -> None:
    before = create(run, "upd", "--max-runs", "7", "--label", "a=b", "--body", "1")
    changed = as_json(
        run("job", "update", "upd", "--timezone", "Asia/Kolkata", "--clear", "max-runs", "-o", "json").stdout
    )
    assert changed["generation"] == before["generation"] + 1
    volatile = {"generation", "updatedAt", "nextAt"}
    expected = before | {"timezone": "Asia/Kolkata", "maxRuns": None}
    assert {k: v for k, v in changed.items() if k not in volatile} == {
        k: v for k, v in expected.items() if k not in volatile
    }
    cleared = as_json(run("job", "update", "upd", "--clear", "body", "-o", "json").stdout)
    assert cleared["body"] is None
    assert run("job", "update", "upd", "--jitter", "1s", "--if-generation", "1").exit_code == 5
    assert run("job", "update", "upd", "--max-runs", "2", "--clear", "max-runs").exit_code == 2


def test_an_update_of_nothing_is_a_wrong_use_and_its_help_tells_no_defaults(run: Run) -> None:
    before = create(run, "same")
    for options in ((), ("--if-generation", "1")):
        result = run("job", "update", "same", *options)
        assert (result.exit_code, "that changes the job" in result.stderr) == (2, True)
    assert as_json(run("job", "get", "same", "-o", "json").stdout)["generation"] == before["generation"]
    assert "default: UTC" in run("job", "create", "--help").stdout
    told = run("job", "update", "--help").stdout
    assert "[default: " not in told
    assert "--retry-on-exhausted" not in told


def test_lists_are_filtered_and_paged_and_show_notes(run: Run) -> None:
    for name in ("list-a", "list-b", "list-c"):
        create(run, name, "--label", f"name={name}")
    run("job", "pause", "list-b", "--note", "moving house", "--by", "ann")
    page = run("job", "list", "--name-prefix", "list-", "--limit", "2", "-o", "json")
    cursor = as_json(page.stdout)["nextCursor"]
    assert f"--cursor {cursor}" in page.stderr
    rest = as_json(run("job", "list", "--name-prefix", "list-", "--cursor", cursor, "-o", "json").stdout)
    assert [job["name"] for job in rest["jobs"]] == ["list-c"]
    paused = run("job", "list", "--name-prefix", "list-", "--state", "paused").stdout
    assert "list-b" in paused
    assert "moving house" in paused
    assert "list-a" not in paused
    assert "list-c" in run("job", "list", "--label", "name=list-c").stdout


def write_record(store: str, name: str, text: bytes) -> None:
    """What another program would do."""

    async def write() -> None:
        records = store_from_url(store, clock=SystemClock())
        await records.open()
        try:
            assert await records.put_record("jobs:meta", name, text, expect=0, now=await records.time())
        finally:
            await records.close()

    asyncio.run(write())


def test_a_broken_record_is_shown_with_its_problem_and_put_right_by_a_file(run: Run, server: Running) -> None:
    write_record(server.store, "broken-a", b'{"schedule": "0 0 30 2 *", "url": "http://127.0.0.1:9/"}')
    write_record(server.store, "broken-b", b'{"sched')
    write_record(server.store, "broken-c", b'{"schedule": "@yearly", "url": "handler:report"}')
    listed = run("job", "list", "--name-prefix", "broken-")
    assert "a date that exists" in listed.stdout
    assert "Expected a job as JSON" in listed.stdout
    assert "handler" in listed.stdout
    assert "3 broken" in listed.stderr
    text = "".join(
        f'[jobs.{name}]\nschedule = "{NEVER}"\nurl = "{URL}"\n' for name in ("broken-a", "broken-b", "broken-c")
    )
    assert apply(run, text, "--no-prune")[0] == 0
    states = as_json(run("job", "list", "--name-prefix", "broken-", "-o", "json").stdout)["jobs"]
    assert [job["state"] for job in states] == ["scheduled"] * 3
    assert apply(run, text, "--no-prune", "--dry-run")[0] == 0


def test_a_pause_has_a_note_and_ends_with_a_resume(run: Run) -> None:
    create(run, "held")
    paused = as_json(run("job", "pause", "held", "--note", "audit", "--by", "ann", "-o", "json").stdout)
    assert (paused["state"], paused["note"], paused["by"], paused["nextAt"]) == ("paused", "audit", "ann", None)
    resumed = as_json(run("job", "resume", "held", "--by", "bob", "-o", "json").stdout)
    assert (resumed["state"], resumed["by"]) == ("scheduled", "bob")
    assert run("job", "resume", "held").exit_code == 5


def test_a_preview_tells_clock_changes_in_words(run: Run) -> None:
    zone = ("--timezone", "Europe/Berlin", "--count", "2")
    spring = run("job", "preview", "30 2 * * *", *zone, "--from", "2027-03-27T12:00:00Z").stdout.splitlines()
    assert spring[0].split()[:2] == ["UTC", "Europe/Berlin"]
    assert "2027-03-28 01:30:00Z" in spring[1]
    assert "2027-03-28 03:30:00+02  Sun" in spring[1]
    assert "skips" in spring[1]
    assert spring[2].rstrip().endswith("Mon")
    autumn = run("job", "preview", "30 2 * * *", *zone, "--from", "2027-10-30T12:00:00Z", "--on-overlap", "both").stdout
    assert "the first of two" in autumn
    assert "the second of two" in autumn


def test_a_preview_in_utc_shows_each_instant_once(run: Run) -> None:
    shown = run(
        "job", "preview", "@daily", "--timezone", "UTC", "--from", "2027-03-27T12:00:00Z", "--count", "1"
    ).stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["UTC", "day", "clock", "change"],
        ["2027-03-28", "00:00:00Z", "Sun"],
    ]


def test_a_preview_with_one_rule_for_clock_changes_keeps_the_other_one_of_the_job(run: Run) -> None:
    create(run, "ruled", "--timezone", "Europe/Berlin", "--on-overlap", "both")
    run("job", "update", "ruled", "--schedule", "30 2 * * *")
    shown = run("job", "preview", "ruled", "--on-gap", "skip", "--from", "2027-10-30T12:00:00Z", "--count", "2").stdout
    assert "the first of two" in shown
    assert "the second of two" in shown


def test_a_preview_of_a_spread_schedule_needs_a_name_and_is_what_the_job_will_do(run: Run) -> None:
    assert "name of a job" in run("job", "preview", "H * * * *").stderr
    before = run("job", "preview", "H * * * *", "--name", "spread", "--from", "2026-06-01T00:00:00Z")
    run("job", "create", "spread", "H * * * *", "--callback-url", "http://127.0.0.1:8711/")
    assert before.stdout == run("job", "preview", "spread", "--from", "2026-06-01T00:00:00Z").stdout
    assert run("job", "preview", "spread", "--name", "other").exit_code == 2


def test_a_preview_of_a_job_is_that_of_its_calendar(run: Run) -> None:
    create(run, "seen", "--timezone", "Asia/Kolkata", "--end-at", "2028-01-01T00:00:00Z")
    run("job", "update", "seen", "--schedule", "0 9 1 1 *")
    shown = run("job", "preview", "seen", "--from", "2026-06-01T00:00:00Z", "-o", "json")
    assert [instant["local"] for instant in as_json(shown.stdout)["instants"]] == ["2027-01-01T09:00:00+05:30"]
    assert "no more" in shown.stderr
    assert run("job", "preview", "nobody").exit_code == 3
    assert run("job", "preview", "61 * * * *").exit_code == 2


def test_a_trigger_that_is_waited_for_shows_how_it_ended(run: Run, receiver: str) -> None:
    policy = ("--retry-initial-interval", "50ms", "--retry-jitter", "0")
    run("job", "create", "fired", NEVER, "--callback-url", receiver, *policy)
    result = run("job", "trigger", "fired", "--wait", "--body", '{"day": 1}', "--by", "ann", "-o", "json")
    assert result.exit_code == 0, result.stderr
    told = as_json(result.stdout)
    assert (told["state"], told["attempts"], told["status"], told["by"]) == ("succeeded", 2, 200, "ann")
    [line] = [each for each in run("job", "runs", "fired").stdout.splitlines() if "fired" in each]
    assert all(word in line.split() for word in ("manual", "succeeded", "2", "200"))
    assert as_json(run("job", "runs", "fired", "--state", "failed", "-o", "json").stdout)["runs"] == []
    assert as_json(run("job", "runs", "fired", "--kind", "manual", "-o", "json").stdout)["runs"] == [told]


def test_a_trigger_that_fails_has_exit_code_one_when_it_is_waited_for(run: Run) -> None:
    create(run, "dead", "--retry-max-attempts", "1")
    assert run("job", "trigger", "dead").exit_code == 0
    result = run("job", "trigger", "dead", "--wait")
    assert result.exit_code == 1
    assert "failed" in result.stdout


def test_a_failed_run_is_run_again_by_its_id(run: Run) -> None:
    run("job", "create", "again", "@daily", *NOWHERE, "--retry-max-attempts", "1")
    run("job", "backfill", "again", "--since", "2026-11-01T00:00:00Z", "--until", "2026-11-02T00:00:00Z")
    for _ in range(100):
        [failed] = as_json(run("job", "runs", "again", "-o", "json").stdout)["runs"]
        if failed["state"] == "failed":
            break
        time.sleep(0.1)
    assert failed["launchId"] in run("job", "runs", "again").stdout
    result = run("job", "rerun", failed["launchId"], "--wait", "--by", "ann", "-o", "json")
    assert result.exit_code == 1, result.stderr
    told = as_json(result.stdout)
    assert (told["kind"], told["state"], told["by"]) == ("rerun", "failed", "ann")
    assert (told["rerunOf"], told["scheduledAt"]) == (failed["launchId"], "2026-11-01T00:00:00Z")
    runs = as_json(run("job", "runs", "again", "-o", "json").stdout)["runs"]
    assert [each["launchId"] for each in runs] == [failed["launchId"], told["launchId"]]
    wrong = run("job", "rerun", "again")
    assert "Expected the launchId of a run" in wrong.stderr


def test_a_schedule_of_another_scheduler_is_previewed_with_how_it_is_written_here(run: Run) -> None:
    assert "set `timezone` to" in run("job", "preview", "CRON_TZ=Europe/Berlin 0 9 * * *").stderr
    assert "recurrence rule" in run("job", "preview", "RRULE:FREQ=DAILY").stderr
    assert "did you mean Europe/Berlin?" in run("job", "preview", "@daily", "--timezone", "Berlin").stderr


def test_a_backfill_counts_first(run: Run) -> None:
    run("job", "create", "past", "@daily", *NOWHERE, "--retry-max-attempts", "1")
    span = ("--since", "2026-11-01T00:00:00Z", "--until", "2026-11-03T00:00:00Z")
    counted = as_json(run("job", "backfill", "past", *span, "--dry-run", "-o", "json").stdout)
    assert (counted["instants"], counted["launched"], counted["dryRun"]) == (2, 2, True)
    assert as_json(run("job", "runs", "past", "-o", "json").stdout)["runs"] == []
    done = as_json(run("job", "backfill", "past", *span, "--by", "ann", "-o", "json").stdout)
    assert (done["launched"], done["dryRun"]) == (2, False)
    kinds = {each["kind"] for each in as_json(run("job", "runs", "past", "-o", "json").stdout)["runs"]}
    assert kinds == {"backfill"}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0, "0ms"),
        (999, "999ms"),
        (1049, "1.0s"),
        (59_949, "59.9s"),
        (59_990, "1m 0s"),
        (7_500_000, "2h 5m"),
    ],
)
def test_durations_are_shown_for_people(ms: int | None, text: str) -> None:
    assert duration_text(ms) == text


# --- apply ------------------------------------------------------------------------------------------------


FILE = """
[jobs.apply-a]
schedule = "0 0 29 2 *"
url = "http://127.0.0.1:9/"
body = { n = 1 }

[jobs.apply-b]
schedule = "0 0 29 2 *"
url = "http://127.0.0.1:9/"
"""


def apply(run: Run, text: str, *options: str) -> tuple[int, Any]:
    Path("jobs.toml").write_text(text)
    result = run("job", "apply", "jobs.toml", "-o", "json", *options)
    return result.exit_code, as_json(result.stdout) if result.stdout else result.stderr


def test_a_file_is_applied_and_then_there_is_no_difference(run: Run) -> None:
    code, difference = apply(run, FILE, "--no-prune", "--dry-run")
    assert (code, difference["created"]) == (7, ["apply-a", "apply-b"])
    assert run("job", "get", "apply-a").exit_code == 3
    assert apply(run, FILE, "--no-prune") == (0, difference | {"dryRun": False})
    again = {"created": [], "updated": [], "deleted": [], "unchanged": 2, "dryRun": True}
    assert apply(run, FILE, "--no-prune", "--dry-run") == (0, again)
    changed = FILE.replace("n = 1", "n = 2") + "paused = true\n"
    code, difference = apply(run, changed, "--no-prune")
    assert code == 0
    assert difference["updated"] == [
        {"name": "apply-a", "changes": [{"field": "body", "old": {"n": 1}, "new": {"n": 2}}]},
        {"name": "apply-b", "changes": [{"field": "paused", "old": False, "new": True}]},
    ]
    assert as_json(run("job", "get", "apply-b", "-o", "json").stdout)["state"] == "paused"
    assert apply(run, FILE, "--no-prune", "--dry-run")[0] == 7  # the body; the pause is left alone


def test_jobs_that_are_not_in_the_file_are_deleted_after_a_question(run: Run) -> None:
    for job in as_json(run("job", "list", "-o", "json").stdout)["jobs"]:
        run("job", "delete", job["name"])
    create(run, "prune-me")
    create(run, "apply-a")
    Path("jobs.toml").write_text('[jobs.apply-a]\nschedule = "0 0 29 2 *"\nurl = "http://127.0.0.1:9/"\n')
    told = run("job", "apply", "jobs.toml", "--dry-run")
    assert (told.exit_code, told.stdout) == (
        7,
        "- delete prune-me\n0 to create, 0 to update, 1 to delete, 1 unchanged.\n",
    )
    assert run("job", "apply", "jobs.toml", stdin="n\n").exit_code == 1
    assert run("job", "get", "prune-me").exit_code == 0
    done = run("job", "apply", "jobs.toml", stdin="y\n")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "0 created, 0 updated, 1 deleted.")
    assert run("job", "get", "prune-me").exit_code == 3
    assert run("job", "apply", "jobs.toml", "--yes").exit_code == 0


def test_nothing_is_changed_when_one_job_of_the_file_is_wrong(run: Run) -> None:
    text = FILE.replace("apply-", "never-")
    assert apply(run, text + '[jobs.never-c]\nschedule = "@daily"\nurll = "x"\n', "--no-prune")[0] == 2
    code, told = apply(run, text + '[jobs.never-c]\nschedule = "@daily"\nurl = "http://10.0.0.1/"\n', "--no-prune")
    assert code == 2
    assert "never-c" in told
    assert as_json(run("job", "list", "--name-prefix", "never-", "-o", "json").stdout)["jobs"] == []


def test_a_file_may_come_from_stdin(run: Run) -> None:
    result = run(
        "job",
        "apply",
        "-",
        "--no-prune",
        stdin='{"jobs": [{"name": "piped", "schedule": "@yearly", "url": "http://127.0.0.1:9/"}]}',
    )
    assert result.exit_code == 0, result.stderr
    assert "+ create piped   @yearly   UTC" in result.stdout


def test_an_empty_ledger_says_whether_there_is_such_a_job(run: Run) -> None:
    result = run("job", "runs", "nobody")
    assert result.exit_code == 3
    assert "Job 'nobody' does not exist, and has no runs" in result.stderr
