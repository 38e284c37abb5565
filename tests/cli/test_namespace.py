"""`mainspring namespace delete` and `reshard`: what they ask, what they say, and how an interrupted one goes on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from mainspring.client._sync.namespaces import Namespaces
from mainspring.errors import NetworkError
from tests.cli.conftest import Run
from tests.support.running_server import COMMAND, Running, clean_environment

TIMER = ("--in", "1d", "--callback-url", "https://example.com/")


def interrupted(server: Running, *arguments: str, at: str) -> str:
    """What a command says whose user presses Ctrl-C when it says `at`."""
    environment = {**clean_environment(), "MAINSPRING_URL": server.url, "MAINSPRING_TOKEN": server.token}
    command = [*COMMAND, "namespace", *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while at not in (line := process.stderr.readline()):
            assert line, f"Expected {at!r}, got the end of the command"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(timeout=20) == 130
    return said


@pytest.mark.slow  # it takes the ten seconds
def test_a_namespace_is_deleted_after_a_dry_run_and_a_refusal(run: Run) -> None:
    assert run("namespace", "create", "trial").exit_code == 0
    assert run("namespace", "delete", "default", "--yes").exit_code == 5
    assert run("timer", "create", "one", "--namespace", "trial", *TIMER).exit_code == 0
    found = json.loads(run("namespace", "delete", "trial", "--dry-run", "-o", "json").stdout)
    assert (found["timers"], found["deleted"], found["dryRun"]) == (1, False, True)
    refused = run("namespace", "delete", "trial", "--yes")
    assert refused.exit_code == 5
    assert "has timers" in refused.stderr
    unasked = run("namespace", "delete", "trial")
    assert unasked.exit_code == 5
    assert unasked.stderr == "Error: Namespace 'trial' has 1 timer: --force deletes them with it\n"
    unsure = run("namespace", "delete", "trial", "--force", stdin="n\n")
    assert unsure.exit_code == 1
    assert "with 1 timer and its history?" in unsure.stderr
    done = run("namespace", "delete", "trial", "--force", stdin="y\n")
    assert done.exit_code == 0, done.stderr
    assert "Waiting until no instance adds timers" in done.stderr
    assert run("namespace", "get", "trial").exit_code == 3


@pytest.mark.slow  # real processes
def test_who_interrupts_a_deletion_is_told_how_things_stand_and_can_go_on_or_keep_the_namespace(
    run: Run, server: Running
) -> None:
    assert run("namespace", "create", "doubted").exit_code == 0
    assert run("timer", "create", "one", "--namespace", "doubted", *TIMER).exit_code == 0
    said = interrupted(server, "delete", "doubted", "--force", "--yes", at="Waiting until no instance adds timers")
    assert "Namespace doubted is marked as being deleted" in said
    assert "To go on:   mainspring namespace delete doubted --force\n" in said
    assert "To keep it: mainspring namespace delete doubted --cancel\n" in said
    assert "It is being deleted: it takes no timers" in run("namespace", "get", "doubted").stderr
    assert "being deleted" in run("namespace", "list").stdout
    misled = run("namespace", "delete", "doubted", "--yes")
    assert misled.exit_code == 5
    assert "is already being deleted with them: give --force to go on, or --cancel to keep it" in misled.stderr
    assert run("namespace", "delete", "doubted", "--cancel", "--force").exit_code == 2
    kept = run("namespace", "delete", "doubted", "--cancel")
    assert kept.exit_code == 0, kept.stderr
    assert "Namespace doubted is kept" in kept.stderr
    assert run("timer", "get", "one", "--namespace", "doubted").exit_code == 0
    assert run("timer", "create", "two", "--namespace", "doubted", *TIMER).exit_code == 0


@pytest.mark.slow  # it takes the ten seconds
def test_a_namespace_gets_more_shards(run: Run, server: Running) -> None:
    assert run("namespace", "create", "growing", "--shard-count", "2").exit_code == 0
    assert run("timer", "create", "one", "--namespace", "growing", *TIMER).exit_code == 0
    fewer = run("namespace", "reshard", "growing", "--shard-count", "1")
    assert fewer.exit_code != 0
    assert "Expected more shards than the 2 there are, got 1" in fewer.stderr
    tried = run("namespace", "reshard", "growing", "--shard-count", "8", "--dry-run", "-o", "json")
    assert (json.loads(tried.stdout)["shardCount"], json.loads(tried.stdout)["dryRun"]) == (2, True)
    assert tried.stderr == "It can get 8 shards. Nothing was changed.\n"
    said = interrupted(server, "reshard", "growing", "--shard-count", "8", at="New timers go to 8 shards from")
    assert "That needs this command no more." in said
    assert "To look: mainspring namespace reshard growing\n" in said
    grown = run("namespace", "reshard", "growing", "--shard-count", "8", "-o", "json")
    assert grown.exit_code == 0, grown.stderr
    assert "New timers go to 8 shards from" in grown.stderr
    assert "The earlier 2 shards from" in grown.stderr
    assert "1 timer left" in grown.stderr
    assert json.loads(grown.stdout)["earlier"][0]["timers"] == 1
    for shown in (run("namespace", "get", "growing").stderr, run("namespace", "list").stdout):
        assert "New timers go to 8 shards from" in shown
        assert "earlier shards: 2 from" in shown
    assert run("timer", "create", "two", "--namespace", "growing", *TIMER).exit_code == 0
    assert run("timer", "delete", "one", "--namespace", "growing").exit_code == 0
    assert "no timers; kept for the history until" in run("namespace", "reshard", "growing").stderr
    [left] = json.loads(run("timer", "list", "--namespace", "growing", "-o", "json").stdout)["timers"]
    assert left["timerId"] == "two"


@pytest.mark.parametrize("arguments", [("reshard", "default"), ("delete", "trial", "--yes")], ids=lambda one: one[0])
def test_who_loses_the_connection_is_told_to_run_the_same_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    def lose(*_: Any, progress: Callable[[Any], object], **__: Any) -> None:
        error = NetworkError("The connection was lost")
        error.outcome_unknown = True
        raise error

    monkeypatch.setattr(Namespaces, arguments[0], lose)
    lost = run("namespace", *arguments)
    assert lost.exit_code == 6
    assert "Run the same command again: it goes on from where this one was." in lost.stderr
    assert "check before you repeat it" not in lost.stderr
