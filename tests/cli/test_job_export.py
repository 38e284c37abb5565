"""Jobs as files: written by `job export`, in YAML or JSON, and applied again without a difference."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from mainspring.cli.job_file import read_jobs
from mainspring.errors import InvalidInput
from tests.cli.conftest import Run

NEVER = "0 0 29 2 *"
TARGET = ("--callback-url", "http://127.0.0.1:9/")


def create(run: Run, name: str, *options: str) -> None:
    result = run("job", "create", name, NEVER, *TARGET, *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("file", ["jobs.yaml", "jobs.yml", "jobs.json"])
def test_what_is_exported_and_applied_again_makes_no_difference(run: Run, file: str) -> None:
    label = f"file={file}"
    create(run, f"plain-{file}", "--label", label)
    create(
        run,
        *(f"rich-{file}", "--label", label, "--label", "team=blue", "--timezone", "Europe/Berlin"),
        *("--body", '{"n": [1]}'),
        *("-H", "X-Team: blue", "--retry-max-attempts", "5", "--on-gap", "skip", "--max-runs", "3", "--paused"),
        *("--note", "yes: no", "--start-at", "2027-01-01T00:00:00Z", "--method", "PUT"),
    )
    result = run("job", "export", file, "--label", label)
    assert (result.exit_code, result.stderr) == (0, f"2 jobs written to {file}\n")
    told = yaml.safe_load(Path(file).read_text())
    assert told["labels"] == {"file": file}
    assert told["jobs"][f"plain-{file}"] == {"schedule": NEVER, "url": "http://127.0.0.1:9/"}
    again = run("job", "apply", file, "--dry-run")
    assert (again.exit_code, again.stdout) == (0, "0 to create, 0 to update, 0 to delete, 2 unchanged.\n")
    for name in told["jobs"]:
        run("job", "delete", name)
    assert run("job", "apply", file).exit_code == 0
    assert run("job", "apply", file, "--dry-run").exit_code == 0
    shown = json.loads(run("job", "get", f"rich-{file}", "-o", "json").stdout)
    assert (shown["state"], shown["note"], shown["body"]) == ("paused", "yes: no", {"n": [1]})


def test_stdout_gets_yaml_and_secrets_only_go_to_a_file_of_ones_own(run: Run) -> None:
    url = ("--callback-url", "https://example.com/?token=very-secret")
    create(run, "hush", "--label", "team=hush", "-H", "Authorization: very-secret", *url)
    shown = run("job", "export", "--label", "team=hush")
    assert yaml.safe_load(shown.stdout)["jobs"]["hush"]["headers"] == {"Authorization": "***"}
    assert shown.stderr == "1 job with secrets, which were left out; --secrets includes them\n"
    assert run("job", "apply", "-", "--dry-run", stdin=shown.stdout).exit_code == 0, "what is hidden is unchanged"
    assert run("job", "export", "--secrets").exit_code == 2
    assert run("job", "export", "own.yaml", "--secrets", "--label", "team=hush").exit_code == 0
    assert Path("own.yaml").read_text().count("very-secret") == 2
    assert "very-secret" not in shown.stdout
    assert stat.S_IMODE(Path("own.yaml").stat().st_mode) == 0o600
    refused = run("job", "export", "jobs.toml")
    assert (refused.exit_code, "Expected a file of YAML or JSON, got jobs.toml" in refused.stderr) == (2, True)


def test_a_file_with_labels_leaves_the_jobs_of_others_alone(run: Run) -> None:
    create(run, "red-1", "--label", "team=red")
    create(run, "green-1", "--label", "team=green")
    create(run, "green-2", "--label", "team=green")
    Path("green.yaml").write_text(
        f'jobs:\n  green-1: {{schedule: "{NEVER}", url: "http://127.0.0.1:9/"}}\n'
        f'  green-3: {{schedule: "{NEVER}", url: "http://127.0.0.1:9/"}}\n'
    )
    dry = run("job", "apply", "green.yaml", "--label", "team=green", "--dry-run", "-o", "json")
    told = json.loads(dry.stdout)
    assert (told["created"], told["deleted"], told["updated"]) == (["green-3"], ["green-2"], [])
    asked = run("job", "apply", "green.yaml", "--label", "team=green", stdin="y\n")
    assert "Delete 1 job with team=green that is not in the file?" in asked.stderr
    assert run("job", "get", "red-1").exit_code == 0
    assert run("job", "get", "green-2").exit_code == 3
    made = json.loads(run("job", "get", "green-3", "-o", "json").stdout)
    assert made["labels"] == {"team": "green"}


def test_a_job_is_checked_without_being_created(run: Run) -> None:
    result = run("job", "create", "dry", NEVER, *TARGET, "--dry-run", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "Nothing was created.\n")
    assert json.loads(result.stdout)["nextAt"].startswith("2028-02-29")
    assert run("job", "get", "dry").exit_code == 3
    assert run("job", "create", "dry", "61 * * * *", *TARGET, "--dry-run").exit_code == 2


def test_deleting_says_what_was_deleted(run: Run) -> None:
    create(run, "away")
    assert run("job", "delete", "away").stdout == "deleted away\n"


def test_people_see_the_retry_policy_in_force(run: Run) -> None:
    create(run, "default-policy")
    shown = " ".join(run("job", "get", "default-policy").stdout.split())
    assert "retryPolicy 3 attempts; waits 1s, then times 2, at most 600s, up to 10% more; then the run is over" in shown


# --- YAML -------------------------------------------------------------------------------------------------


JOBS = '---\nlabels: {team: blue}\njobs:\n  report: {schedule: "@daily", url: "https://example.com/"}\n'


def test_yaml_is_told_from_toml_and_json_by_its_contents_and_means_the_same() -> None:
    files = (
        JOBS,
        'jobs:\n  - name: report\n    schedule: "@daily"\n    url: https://example.com/\nlabels: {team: blue}\n',
        '[labels]\nteam = "blue"\n[jobs.report]\nschedule = "@daily"\nurl = "https://example.com/"\n',
        '{"labels": {"team": "blue"}, "jobs": {"report": {"schedule": "@daily", "url": "https://example.com/"}}}',
    )
    read = [read_jobs(text.encode()) for text in files]
    assert [file.labels for file in read] == [{"team": "blue"}] * 4
    assert [file.jobs["report"].job for file in read] == [read[0].jobs["report"].job] * 4
    assert read[0].jobs["report"].job.labels == {"team": "blue"}
    assert read_jobs(JOBS.encode(), "yaml") == read[0]


def test_anchors_and_merge_keys_are_read() -> None:
    text = (
        "jobs:\n  a: &base {schedule: '@daily', url: 'https://example.com/', timeoutSeconds: 5}\n"
        "  b: {<<: *base, schedule: '@hourly'}\n"
    )
    jobs = read_jobs(text.encode()).jobs
    assert (jobs["b"].job.schedule, jobs["b"].job.timeout_seconds) == ("@hourly", 5.0)


BOMB = "jobs:\n  a: &a0 {schedule: x}\n" + "".join(
    f"  b{level}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]\n" for level in range(9)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs:\n  a: {schedule: '@daily'}\n  a: {schedule: '@daily'}\n", "each key once, got 'a' again at line 3"),
        ("jobs:\n  a: {schedule: @daily}\n", "at line 2: found character '@'.*; quote a value that begins with @"),
        ("jobs:\n  a: {schedule: * * * * *}\n", "quote a value that begins with @ or"),
        ("jobs: [\n", "Expected YAML, got at line 2"),
        ("jobs: &a [*a]\n", "contains itself"),
        ("jobs: !!python/object:os.system {}\n", "Expected YAML"),
        ("jobs: {a: {schedule: '@daily', startAt: 2026-13-45}}\n", "Expected|required"),
        ("jobs: {[1]: {}}\n", "text as a key"),
        ("--- {jobs: {}}\n--- {jobs: {}}\n", "Expected YAML"),
        ("---\n", "Expected a JSON object|null"),
        (BOMB, "at most 1000000 values"),
        ("jobs: {a: {schedule: '@daily', labels: {team: red}}}\nlabels: {team: blue}\n", "mistake"),
        ("jobs: {}\nlabel: {}\n", "did you mean labels"),
    ],
)
def test_what_is_wrong_with_yaml_is_said_in_words(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_jobs(text.encode(), "yaml")
