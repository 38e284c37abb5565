"""One configuration, checked as a whole: what `serve` refuses, `admin config --validate` refuses, all at once."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from mainspring.config import Config, load_config
from mainspring.errors import ConfigError
from mainspring.processes.startup import read_token
from tests.cli.conftest import run_alone
from tests.support.running_server import COMMAND, clean_environment

VALIDATE = ("admin", "config", "--validate")
GOOD_TOKEN = "0123456789-abcdefghijk"


def test_everything_that_is_wrong_is_named_at_once_and_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("m.toml").write_text('port = "x"\ncolour = "red"\nrenew_seconds = 5\n')
    monkeypatch.setenv("MAINSPRING_ALLOW_TARGETS", "10.1.0.0/16,10.1.0.1/16,nowhere")
    monkeypatch.setenv("MAINSPRING_DRAIN_SECOND", "3")
    monkeypatch.setenv("MAINSPRING_TOKEN", "guess-me")
    flags = ("--config", "m.toml", "--drain-seconds", "-1", "--log-level", "loud", "--store", "oracle://u:secret@x/y")
    for command in (VALIDATE, ("serve",)):
        result = run_alone(*command, *flags, "--advertise-url", "here")
        assert result.exit_code == 2
        lines = result.stderr.splitlines()
        assert lines[0] == "Error: The configuration is not valid."
        wrong = {line.split(":")[0].strip(): line for line in lines[1:]}
        assert set(wrong) == {
            *("/port", "/colour", "/renew_seconds", "/allow_targets", "/MAINSPRING_DRAIN_SECOND", "/token"),
            *("/drain_seconds", "/log_level", "/store", "/advertise_url"),
        }
        assert len(lines) == 1 + len(wrong), "each is named once"
        assert "MAINSPRING_DRAIN_SECONDS" in wrong["/MAINSPRING_DRAIN_SECOND"]
        assert "10.1.0.1/16" in wrong["/allow_targets"]
        assert "nowhere" in wrong["/allow_targets"]
        assert "whole number" in wrong["/port"]
        assert "secret" not in result.stderr
        assert "guess-me" not in result.stderr
    assert list(Path().iterdir()) == [Path("m.toml")]


@pytest.mark.parametrize(
    "store",
    [
        "oracle://x",
        "sqlite://",
        "sqlite:file.db",
        "memory://x",
        "redis://h/0",
        "postgresql://h",
        "mysql://h/a/b",
        "mongodb://h",
        "mongodb://h/d?colour=red",
    ],
)
def test_a_store_that_a_server_would_refuse_is_found_by_validation(store: str) -> None:
    result = run_alone(*VALIDATE, "--store", store)
    assert (result.exit_code, "/store: Expected" in result.stderr) == (2, True)


def test_what_is_valid_is_valid() -> None:
    result = run_alone(
        *(*VALIDATE, "--store", "postgresql://u@h/d", "--allow-target", "10.0.0.0/8", "--allow-target", "fd00::/8"),
        *("--log-level", "debug"),
    )
    assert (result.exit_code, result.stdout) == (0, "")
    assert run_alone(*VALIDATE).exit_code == 0
    assert list(Path().iterdir()) == []


def test_a_rule_between_two_settings_waits_until_both_can_be_read() -> None:
    result = run_alone(*VALIDATE, "--lease-seconds", "x", "--renew-seconds", "50")
    assert "/lease_seconds" in result.stderr
    assert "/renew_seconds" not in result.stderr


@pytest.mark.parametrize("text", ["port = ", "\xff"])
def test_a_file_that_is_no_toml_gives_exit_code_two(text: str) -> None:
    Path("m.toml").write_bytes(text.encode("latin1"))
    for command in (VALIDATE, ("serve",), ("admin", "migrate")):
        result = run_alone(*command, "--config", "m.toml")
        assert (result.exit_code, "Expected TOML" in result.stderr) == (2, True)
    assert run_alone(*VALIDATE, "--config", "missing.toml").exit_code == 2


def test_a_wrong_variable_gives_exit_code_two_in_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_TOKN", "x")
    for command in (("timer", "list"), VALIDATE, ("serve",)):
        result = run_alone(*command)
        assert result.exit_code == 2
        assert "unknown variable; did you mean MAINSPRING_TOKEN?" in result.stderr


def test_variables_that_are_documented_but_no_settings_are_let_be() -> None:
    others = {
        "MAINSPRING_URL": "http://x",
        "MAINSPRING_CRASH_AT": "after-commit:3",
        "MAINSPRING_CONFIG": "",
        "HOME": "/",
    }
    assert load_config(environ=others) == Config()


def test_a_setting_that_a_program_misspells_is_named() -> None:
    with pytest.raises(ConfigError, match="prot: unknown setting; did you mean port"):
        load_config({"prot": 1}, environ={})


@pytest.mark.parametrize("token", ["x", "a" * 21, "with space 0123456789-0123456789", "ä" * 30])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token: Expected") as refused:
        load_config({"token": token}, environ={})
    assert token not in refused.value.detail.split()


def test_a_real_server_refuses_a_short_token_with_exit_code_two() -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=clean_environment() | {"MAINSPRING_TOKEN": "short"},
    )
    assert done.returncode == 2
    assert "at least 22 characters" in done.stderr


def test_a_token_file_that_is_too_short_is_refused_at_the_start_and_by_validation() -> None:
    Path(".mainspring").mkdir()
    Path(".mainspring/token").write_text("short\n")
    Path(".mainspring/token").chmod(0o600)
    result = run_alone(*VALIDATE)
    assert (result.exit_code, "at least 22 characters" in result.stderr) == (2, True)
    with pytest.raises(ConfigError, match="at least 22 characters"):
        read_token(Config())
    Path("good").write_text(GOOD_TOKEN)
    Path("good").chmod(0o600)
    assert run_alone(*VALIDATE, "--token-file", "good").exit_code == 0


def test_servers_that_start_at_the_same_moment_read_one_token(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    for turn in range(20):
        config = Config(data_dir=str(tmp_path / str(turn)))
        found: list[str] = []

        def read(config: Config = config, found: list[str] = found) -> None:
            start.wait(10)
            found.append(read_token(config)[0])

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(found) == 8
        assert set(found) == {config.token_path.read_text().strip()}
        assert os.listdir(config.data_dir) == ["token"]
        assert stat.S_IMODE(config.token_path.stat().st_mode) == 0o600


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # not even root can make a directory in a file
    with pytest.raises(ConfigError, match="data directory that can be written"):
        read_token(Config(data_dir=str(tmp_path / "file" / "new")))


def test_every_default_is_within_its_own_bounds() -> None:
    plain = Config()
    assert msgspec.json.decode(msgspec.json.encode(plain), type=Config) == plain


def test_a_setting_that_may_be_unset_does_not_ask_for_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_ALLOW_LOOPBACK", "yes")
    assert "Expected true or false, got text" in run_alone(*VALIDATE).stderr


def test_the_configuration_is_printed_as_it_is_written() -> None:
    lines = [line.split() for line in run_alone("admin", "config").stdout.splitlines()]
    assert ["redact_urls", "true", "default"] in lines
    assert ["allow_loopback", "default"] in lines
