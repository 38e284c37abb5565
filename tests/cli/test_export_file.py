"""Where an export goes: a file appears whole, links are followed, and what is no regular file stays what it is."""

from __future__ import annotations

import json
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LINE = {"timerId": "t", "executeAt": "2036-01-01T00:00:00Z", "callbackUrl": "https://example.com/"}


@pytest.fixture
def export(run: Run) -> Run:
    """Runs an export of one timer to where the arguments say."""
    run("namespace", "create", "exported", "--shard-count", "1")
    run("timer", "import", "-", stdin=json.dumps(LINE | {"namespace": "exported"}))
    return lambda *arguments: run("timer", "export", *arguments, "--namespace", "exported")


@contextmanager
def fifo(path: Path) -> Iterator[int]:
    """A FIFO that somebody reads from; its capacity holds what is exported here."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def timers(data: bytes) -> list[object]:
    return [json.loads(line)["timerId"] for line in data.splitlines()]


def test_a_fifo_is_written_to_and_stays_a_fifo(export: Run, tmp_path: Path) -> None:
    with fifo(tmp_path / "out") as reader:
        assert export("out").exit_code == 0
        assert timers(os.read(reader, 65_536)) == ["t"]
    assert stat.S_ISFIFO((tmp_path / "out").stat().st_mode)
    assert os.listdir(tmp_path) == ["out"]


def test_a_device_is_written_to_and_stays_a_device(export: Run, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(os.devnull)
    assert export("out").exit_code == 0
    assert stat.S_ISCHR((tmp_path / "out").stat().st_mode)
    assert os.readlink("out") == os.devnull
    assert os.listdir(tmp_path) == ["out"]


def test_a_pipe_that_the_shell_made_is_written_to(export: Run, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        (tmp_path / "out").symlink_to(f"/dev/fd/{writer}")
        assert export("out").exit_code == 0
        assert timers(os.read(reader, 65_536)) == ["t"]
    finally:
        os.close(reader)
        os.close(writer)
    assert os.listdir(tmp_path) == ["out"]


def test_what_stood_in_a_file_that_the_shell_has_opened_stays_in_it(export: Run, tmp_path: Path) -> None:
    Path("log").write_text("before\n")
    with Path("log").open("ab") as log:
        (tmp_path / "out").symlink_to(f"/dev/fd/{log.fileno()}")
        assert export("out").exit_code == 0
    before, line = Path("log").read_bytes().splitlines()
    assert (before, timers(line)) == (b"before", ["t"])


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_the_file_appears_beside_its_target(export: Run, tmp_path: Path, exists: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "timers"
    if exists:
        target.write_text("old")
    Path("middle").symlink_to("elsewhere/timers")
    Path("out").symlink_to("middle")
    assert export("out", "--secrets").exit_code == 0
    assert (os.readlink("out"), os.readlink("middle")) == ("middle", "elsewhere/timers")
    assert timers(target.read_bytes()) == ["t"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir("elsewhere") == ["timers"]


def test_secrets_are_not_exported_to_what_is_no_regular_file(export: Run, tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to(os.devnull)
    with fifo(tmp_path / "pipe") as reader:
        for name in ("null", "pipe"):
            refused = export(name, "--secrets")
            assert refused.exit_code == 2
            assert f"Expected a regular file for --secrets, got {name}" in refused.stderr
        assert os.read(reader, 1) == b"", "nobody has written"


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("missing/x.jsonl", "No such file or directory"),
        ("README.md/x.jsonl", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--secrets",)])
def test_a_place_where_no_file_can_be_is_refused(export: Run, file: str, reason: str, flags: tuple[str, ...]) -> None:
    Path("README.md").write_text("a file")
    Path("loop").symlink_to("loop")
    refused = export(file, *flags)
    assert refused.exit_code == 2
    assert f"Expected a FILE that can be written, got {file}: {reason}" in refused.stderr


def test_a_disk_without_room_is_named_and_the_old_file_stays(export: Run, tmp_path: Path) -> None:
    Path("out").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        failed = export("out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.exit_code == 1
    assert "Error: out could not be written: File too large" in failed.stderr
    assert Path("out").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_import_reads_from_a_pipe_that_has_a_name(run: Run, tmp_path: Path, form: str) -> None:
    os.mkfifo(tmp_path / "in")
    text = json.dumps(LINE) if form == "jsonl" else f"{','.join(LINE)}\n{','.join(LINE.values())}"
    writer = threading.Thread(target=(tmp_path / "in").write_text, args=(text + "\n",), daemon=True)
    writer.start()
    imported = run("timer", "import", "in", "--format", form, "--dry-run", "-o", "json")
    writer.join(5)
    assert json.loads(imported.stdout) == {
        "lines": 1,
        "created": 1,
        "replaced": 0,
        "failed": 0,
        "dryRun": True,
    }
