"""What holds for the command line as a whole: help, exit codes, errors, configuration, start-up."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mainspring.cli import COMMANDS, main
from mainspring.cli.job_file import read_jobs
from mainspring.cli.parameters import DURATION
from mainspring.config import Config
from mainspring.errors import InvalidInput
from tests.cli.conftest import Run, run_alone
from tests.support.running_server import COMMAND, Running, clean_environment


def all_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


EVERY = dict(all_commands(main))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_teaches_with_examples_and_describes_every_option(path: tuple[str, ...]) -> None:
    result = run_alone(*path, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout
    for parameter in EVERY[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_the_summaries_in_the_table_are_those_of_the_commands() -> None:
    assert set(COMMANDS) == {path[0] for path in EVERY}
    assert "Exit codes:" in run_alone("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], {"rich", "yaml", "uvicorn", "msgspec", "apsw", "asyncio", "mainspring.client"}),
        (["serve", "--help"], {"rich", "yaml", "uvicorn", "mainspring.client", "mainspring.processes.server"}),
        (["serve", "--port", "x"], {"rich", "yaml", "mainspring.client"}),
        (["timer", "--help"], {"rich", "yaml", "uvicorn", "mainspring.client", "mainspring.processes.server"}),
        (["job", "--help"], {"rich", "yaml", "uvicorn", "mainspring.client", "mainspring.processes.server"}),
    ],
)
def test_a_command_loads_only_what_it_needs(arguments: list[str], forbidden: set[str]) -> None:
    program = (
        "import sys\nfrom mainspring.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    print('LOADED', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, env=clean_environment()
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert loaded & forbidden == set()


def test_the_server_command_loads_neither_rich_nor_yaml_nor_the_client() -> None:
    program = "import sys, mainspring.cli.serve, mainspring.processes.server\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert set(done.stdout.split()) & {"rich", "yaml", "mainspring.client"} == set()


def test_help_is_quick() -> None:
    def once() -> float:
        """Processor time, which a machine that is busy with other things does not lengthen much."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], capture_output=True, timeout=30, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(8)) < 0.15


def test_a_server_that_does_not_run_gives_a_hint_and_exit_code_six() -> None:
    result = run_alone("--url", "http://127.0.0.1:9", "timer", "get", "x")
    assert result.exit_code == 6
    assert "mainspring serve" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_or_wrong_token_gives_exit_code_four(server: Running) -> None:
    for token, hint in (((), "MAINSPRING_TOKEN"), (("--token", "wrong"), "taken from --token")):
        result = run_alone("--url", server.url, *token, "timer", "list")
        assert result.exit_code == 4
        assert hint in result.stderr


def test_a_conflict_gives_exit_code_five(run: Run) -> None:
    assert run("namespace", "create", "default").exit_code == 5


def test_a_wrong_url_and_an_unknown_command_are_explained() -> None:
    assert run_alone("--url", "nowhere", "timer", "list").exit_code == 2
    assert run_alone("clock").exit_code == 2


def test_real_processes_answer_with_the_same_exit_codes(server: Running) -> None:
    environment = clean_environment() | {"MAINSPRING_URL": server.url, "MAINSPRING_TOKEN": server.token}

    def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False, env=environment
        )

    missing = run_process("timer", "get", "nothing")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr.startswith("Error: ")
    healthy = run_process("-v", "admin", "health", "-o", "json")
    assert json.loads(healthy.stdout)["status"] == "ok"
    assert "GET /health: 200" in healthy.stderr
    assert server.token not in healthy.stderr


def test_namespaces_are_made_changed_and_shown(run: Run) -> None:
    made = json.loads(run("namespace", "create", "ns-1", "--host-limit", "5", "-o", "json").stdout)
    assert made["hostLimit"] == 5
    changed = run("namespace", "update", "ns-1", "--no-host-limit", "--retry-max-attempts", "2", "-o", "json")
    assert json.loads(changed.stdout)["hostLimit"] is None
    assert json.loads(changed.stdout)["retryPolicy"]["maxAttempts"] == 2
    assert json.loads(run("namespace", "get", "ns-1", "-o", "json").stdout)["secret"] == made["secret"]
    assert "ns-1" in run("namespace", "list").stdout


def test_operators_see_readiness_shards_and_metrics(run: Run) -> None:
    assert "ready" in run("admin", "ready").stdout
    assert json.loads(run("admin", "shards", "-o", "json").stdout)["shards"]
    assert "# TYPE mainspring_" in run("admin", "metrics").stdout


def test_every_setting_that_is_no_secret_is_a_flag_of_serve() -> None:
    names = {parameter.name for parameter in EVERY["serve",].params}
    assert set(Config.__struct_fields__) - names == {"token", "job_token"}


def test_the_effective_configuration_shows_its_sources_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("m.toml").write_text('port = 9001\nlog_level = "debug"\ntoken = "secret-in-the-file-0123456789"\n')
    monkeypatch.setenv("MAINSPRING_LOG_LEVEL", "error")
    monkeypatch.setenv("MAINSPRING_JOB_TOKEN", "pass-of-the-service")
    result = run_alone(
        *("admin", "config", "--config", "m.toml", "--host", "::1", "--allow-target", "10.0.0.0/8", "-o", "json"),
        *("--store", "postgresql://user:pass@host/db"),
        *("--registry", "redis://:pass@host/0"),
    )
    shown = json.loads(result.stdout)
    assert shown["host"] == {"value": "::1", "source": "flag"}
    assert shown["allow_targets"] == {"value": ["10.0.0.0/8"], "source": "flag"}
    assert shown["log_level"] == {"value": "error", "source": "environment"}
    assert shown["port"] == {"value": 9001, "source": "file"}
    assert shown["drain_seconds"]["source"] == "default"
    assert shown["token"] == {"value": "********", "source": "file"}
    assert shown["registry"] == {"value": "redis://********@host/0", "source": "flag"}
    assert shown["job_token"] == {"value": "********", "source": "environment"}
    assert "pass" not in result.stdout
    assert "secret-in-the-file-0123456789" not in run_alone("admin", "config", "--config", "m.toml").stdout


def test_the_store_that_is_used_is_shown_even_if_none_is_configured() -> None:
    shown = json.loads(run_alone("admin", "config", "--data-dir", "/var/lib/ms", "-o", "json").stdout)
    database = "sqlite:////var/lib/ms/mainspring.db"
    assert shown["store"] == {"value": database, "source": "default"}
    assert shown["registry"] == {"value": database, "source": "default"}
    assert shown["token_file"] == {"value": "/var/lib/ms/token", "source": "default"}


def test_migrate_brings_a_store_up_to_date_once() -> None:
    looked = run_alone("admin", "migrate", "--dry-run", "--store", "sqlite:///new.db")
    assert (looked.exit_code, looked.stderr, "0001" in looked.stdout) == (0, "1 migration pending.\n", True)
    first = run_alone("admin", "migrate", "--store", "sqlite:///new.db")
    assert (first.exit_code, "0001" in first.stdout) == (0, True)
    assert first.stderr == "1 migration applied.\n"
    second = run_alone("admin", "migrate", "--store", "sqlite:///new.db")
    assert (second.exit_code, second.stdout) == (0, "")


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ("oracle://x", "Expected a store URL that starts with"),
        ("postgres://me:canary@h/d", "postgresql://"),
        ("redis://:canary@h/0", "Redis keeps records only"),
        ("postgresql://me:canary@h/d", "pip install 'mainspring[postgresql]'"),
    ],
)
def test_serve_and_migrate_refuse_a_store_that_cannot_be_used_with_the_same_reason_and_exit_code(
    store: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "asyncpg.py").write_text("raise ModuleNotFoundError('no asyncpg here', name='asyncpg')")
    environment = clean_environment() | {"PYTHONPATH": str(tmp_path)}
    for command in (("serve", "--port", "0"), ("admin", "migrate")):
        done = subprocess.run(
            [*COMMAND, *command, "--store", store],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environment,
        )
        assert done.returncode == 2
        assert reason in done.stderr
        assert "canary" not in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("2d", 172_800)]
)
def test_durations_are_read_with_and_without_units(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "5 m", "m", "1h-30m", "1y", "٣s", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_the_token_file_is_found_beside_the_data(server: Running) -> None:
    Path(".mainspring").mkdir()
    Path(".mainspring/token").write_text(server.token + "\n")
    os.chmod(".mainspring/token", 0o600)
    assert run_alone("--url", server.url, "timer", "list").exit_code == 0


@pytest.mark.parametrize(
    ("typed", "meant"), [("timers", "timer"), ("jobs", "job"), ("fetchs", "fetch"), ("help", "--help")]
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    result = run_alone(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in result.stderr


def test_what_is_no_whole_number_is_refused_in_our_words() -> None:
    for limit in ("abc", "0", "1001"):
        result = run_alone("timer", "list", "--limit", limit)
        assert result.exit_code == 2
        assert f"Expected a whole number from 1 to 1000, got '{limit}'" in result.stderr
    assert "whole number of at least 0, got '-1'" in run_alone("dev", "receive", "--fail-first", "-1").stderr


def test_a_port_in_use_is_named_with_exit_code_two_by_everything_that_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = f"Port {port} on 127.0.0.1 is already in use"
        result = run_alone("dev", "receive", "--port", port)
        assert (result.exit_code, words in result.stderr) == (2, True)
        target = [sys.executable, "-m", "mainspring.testing.target", "--port", port]
        done = subprocess.run(target, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, words in done.stderr) == (2, True)
        assert done.stderr.startswith("usage: python -m mainspring.testing.target ")


def test_one_of_a_kind_is_not_told_in_the_plural(run: Run) -> None:
    run("timer", "create", "alone", "--callback-url", "http://127.0.0.1:9/", "--in", "1d", "--label", "one=only")
    assert "Delete 1 timer?" in run("timer", "delete", "--label", "one=only").stderr
    assert "1 timer written to out.jsonl" in run("timer", "export", "out.jsonl", "--label", "one=only").stderr
    with pytest.raises(InvalidInput, match=r"got one with 1 mistake$"):
        read_jobs(b'{"jobs": [{"name": "a b", "schedule": "@daily"}]}')


@pytest.mark.parametrize("url", ["ftp://a", "foo", "x"])
def test_a_wrong_url_of_any_length_is_told_what_a_url_begins_with(run: Run, url: str) -> None:
    for arguments in (("timer", "create", "t", "--in", "1d", "--callback-url", url), ("fetch", "create", url)):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Expected a URL with http:// or https://" in result.stderr


@pytest.mark.parametrize("example", ["receiver.py", "payments.py"])
def test_an_example_without_its_arguments_prints_its_usage(example: str) -> None:
    path = Path(__file__).parents[2] / "examples" / example
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.startswith(f"Usage: {example} PORT SECRET")) == (1, True)
