"""Where a token may be seen: on the terminal of whoever starts a server, and in a file that only its owner reads."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainspring.client.discovery import find_token
from mainspring.config import Config, load_config
from mainspring.errors import ConfigError
from mainspring.processes.startup import read_token
from tests.cli.conftest import run_alone
from tests.support.running_server import COMMAND, clean_environment

GOOD_TOKEN = "0123456789-abcdefghijk"


@contextmanager
def started(directory: Path, *flags: str, stderr: int | None = None, **variables: str) -> Iterator[Path]:
    """A server whose log is a file, unless `stderr` is something else; gives the log once it is ready."""
    log = directory / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--store", f"sqlite:///{directory}/m.db", *flags],
            stderr=file if stderr is None else stderr,
            env=clean_environment() | variables,
            cwd=directory,
        )
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(15) == 0, log.read_text()


def eventually(read: Callable[[], str], pattern: str) -> str:
    deadline = time.monotonic() + 15
    text = read()
    while not re.search(pattern, text):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)  # nothing announces the line but the line itself
        text = read()
    return text


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_generated_token_is_not_in_a_log_and_every_line_of_the_log_is_json(tmp_path: Path, workers: str) -> None:
    for _ in range(2):  # the first start makes it, the second finds it
        with started(tmp_path, "--workers", workers, MAINSPRING_LOG_LEVEL="error") as log:
            text = eventually(log.read_text, r"is ready at http://127\.0\.0\.1:\d+ .*\n")
        token = (tmp_path / ".mainspring" / "token").read_text().strip()
        assert token not in log.read_text()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        [ready] = [line for line in lines if "is ready at" in line["message"]]
        assert ready["token"].endswith(".mainspring/token"), text
        assert ready["targets"] == ["public addresses", "this machine"]


@pytest.mark.slow
def test_a_generated_token_is_not_in_a_log_of_plain_text_either(tmp_path: Path) -> None:
    with started(tmp_path, "--log-format", "text") as log:
        text = eventually(log.read_text, "targets ")
    assert (tmp_path / ".mainspring" / "token").read_text().strip() not in text
    assert ".mainspring/token" in text


def test_a_generated_token_is_shown_on_a_terminal(tmp_path: Path) -> None:
    terminal, its_end = pty.openpty()
    shown = bytearray()

    def read() -> str:
        if select.select([terminal], [], [], 0.1)[0]:
            shown.extend(os.read(terminal, 4096))
        return shown.decode()

    try:
        with started(tmp_path, stderr=its_end):
            text = eventually(read, "targets ")
            assert (tmp_path / ".mainspring" / "token").read_text().strip() in text
    finally:
        os.close(terminal)
        os.close(its_end)


@pytest.mark.slow
def test_what_ends_a_server_is_a_json_line_in_its_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--port", "0", "--host", "192.0.2.1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=clean_environment(),
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert [json.loads(line)["level"] for line in done.stderr.splitlines()][-1] == "error"


def test_no_secret_is_a_flag_of_a_process_that_stays() -> None:
    for command in (("serve",), ("executor",), ("admin", "config")):
        for flag in ("--token", "--job-token"):
            result = run_alone(*command, flag, GOOD_TOKEN)
            assert (result.exit_code, "No such option" in result.stderr) == (2, True)
            assert GOOD_TOKEN not in result.stderr


def private(path: Path, text: str = GOOD_TOKEN + "\n") -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_server_and_a_command_read_the_token_from_a_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = private(tmp_path / "elsewhere")
    assert read_token(load_config({"token_file": str(path)}, environ={}))[0] == GOOD_TOKEN
    monkeypatch.setenv("MAINSPRING_TOKEN_FILE", str(path))
    assert find_token(None, url="http://10.0.0.1") == GOOD_TOKEN
    assert load_config().token_path == path
    monkeypatch.delenv("MAINSPRING_TOKEN_FILE")
    with started(tmp_path, "--token-file", str(path)) as log:
        url = re.search(r"ready at (http://\S+)", eventually(log.read_text, r"is ready at \S+ "))
        assert url is not None
        assert run_alone("--url", url[1], "--token-file", str(path), "admin", "ready").exit_code == 0
        assert run_alone("admin", "ready", "--url", url[1], "--token-file", str(path)).exit_code == 0
        assert run_alone("admin", "ready", "--url", url[1]).exit_code != 0


def test_a_token_file_that_is_named_but_missing_is_refused_and_none_is_made(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match="missing"):
        read_token(Config(token_file=str(missing)))
    assert run_alone("admin", "config", "--validate", "--token-file", str(missing)).exit_code == 2
    assert run_alone("--token-file", str(missing), "timer", "list").exit_code == 2
    assert not missing.exists()


def test_a_token_and_a_token_file_are_not_both_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of token and token_file"):
        load_config({"token": GOOD_TOKEN, "token_file": str(tmp_path)}, environ={})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o602])
def test_a_token_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    generated = Path(".mainspring/token")
    generated.parent.mkdir()
    for path, config in (
        (private(generated), Config()),
        (private(tmp_path / "named"), Config(token_file=str(tmp_path / "named"))),
    ):
        assert read_token(config)[0] == GOOD_TOKEN
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_token(config)
    for arguments in ((), ("--token-file", str(tmp_path / "named"))):
        result = run_alone("admin", "config", "--validate", *arguments)
        assert (result.exit_code, "chmod 600" in result.stderr) == (2, True)
        result = run_alone(*arguments, "timer", "list")
        assert (result.exit_code, "chmod 600" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("who", "owner", "mode", "is_private"),
    [
        (0, 1234, 0o600, True),  # root reads the files of those it looks after
        (0, 1234, 0o640, False),
        (1000, 0, 0o640, True),  # so service managers hand out secrets
        (1000, 0, 0o644, False),
        (1000, 1000, 0o600, True),
        (1000, 1000, 0o640, False),
        (1000, 1234, 0o600, False),
    ],
)
def test_whose_a_token_file_may_be(
    monkeypatch: pytest.MonkeyPatch, who: int, owner: int, mode: int, is_private: bool
) -> None:
    path = private(Path("token"))
    found = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, owner, 0, 0, 0, 0))
    monkeypatch.setattr("mainspring.config.os.geteuid", lambda: who)
    monkeypatch.setattr("mainspring.config.os.fstat", lambda _: found)
    if is_private:
        assert read_token(Config(token_file=str(path)))[0] == GOOD_TOKEN
    else:
        with pytest.raises(ConfigError, match="chmod 600"):
            read_token(Config(token_file=str(path)))


@pytest.mark.parametrize(("mode", "text"), [(0o644, GOOD_TOKEN), (0o600, "short")])
def test_only_of_the_generated_token_is_it_said_that_a_new_one_would_be_made(
    tmp_path: Path, mode: int, text: str
) -> None:
    for path in (Path(".mainspring/token"), tmp_path / "named"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    named = ("--token-file", str(tmp_path / "named"))
    for command in (("admin", "config", "--validate"), ("timer", "list")):
        assert "creates a new one" in run_alone(*command).stderr
        refused = run_alone(*command, *named)
        assert (refused.exit_code, "creates" in refused.stderr) == (2, False)
