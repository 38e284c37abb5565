"""Several processes on one store: one execution, and no outcome that is made up after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.idempotency import IdempotentProcessor, Resolved, UnknownOutcome
from mainspring.idempotency.stores import IdempotencyStore
from tests.idempotency.places import store_at
from tests.idempotency.program import LEASE_SECONDS, PAYLOAD, SCOPE
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

Start = Callable[..., "subprocess.Popen[str]"]
SECONDS = 60


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    path = tmp_path / "effects"
    path.touch()
    return path


@pytest.fixture
def start(shared_url: str, effects: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.idempotency.program", shared_url, str(effects), *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=clean_environment())
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def shared_store(shared_url: str) -> Iterator[IdempotencyStore]:
    store = store_at(shared_url)
    yield store
    store.close()


def test_200_callers_of_one_key_in_three_processes_are_one_execution(start: Start, effects: Path) -> None:
    processes = [start("callers", "67"), start("callers", "67"), start("tasks", "66")]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = {process.communicate("go\n", timeout=SECONDS)[0] for process in processes}
    runs = effects.read_text().split()
    assert len(runs) == 1
    assert said == {f"results [{runs[0]}] waiting 0\n"}


def test_a_crash_between_effect_and_record_is_unknown_and_never_run_again(
    start: Start, effects: Path, shared_store: IdempotencyStore
) -> None:
    assert start("die").wait(SECONDS) == -signal.SIGKILL
    processor: IdempotentProcessor[object, str] = IdempotentProcessor(
        shared_store, lambda _: "again", scope=SCOPE, wait_seconds=LEASE_SECONDS + 5
    )
    for _ in range(3):
        with pytest.raises(UnknownOutcome, match="stopped responding") as unknown:
            processor.process(PAYLOAD)
    assert len(effects.read_text().split()) == 1

    resolving: IdempotentProcessor[object, str] = IdempotentProcessor(
        shared_store,
        lambda _: "again",
        scope=SCOPE,
        resolve=lambda _, unresolved: Resolved(f"found {unresolved.attempt}"),
    )
    record = resolving.process(PAYLOAD)
    assert (record.result, record.was_replay, record.key) == ("found 1", True, unknown.value.key)
    assert processor.process(PAYLOAD).result == "found 1"


def test_a_holder_that_was_stopped_past_its_lease_overwrites_nothing(
    start: Start, effects: Path, shared_store: IdempotencyStore
) -> None:
    frozen = start("stop")
    _wait_until_stopped(frozen.pid)
    processor: IdempotentProcessor[object, str] = IdempotentProcessor(
        shared_store, lambda _: "second", scope=SCOPE, safe_to_repeat=True, wait_seconds=LEASE_SECONDS + 5
    )
    assert processor.process(PAYLOAD).result == "second"
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.communicate(timeout=SECONDS)[0] == "lost first\n"
    assert processor.process(PAYLOAD).result == "second"


def test_a_holder_that_was_stopped_records_its_outcome_if_nobody_took_over(
    start: Start, shared_store: IdempotencyStore
) -> None:
    frozen = start("stop")
    _wait_until_stopped(frozen.pid)
    processor: IdempotentProcessor[object, str] = IdempotentProcessor(
        shared_store, lambda _: "second", scope=SCOPE, wait_seconds=LEASE_SECONDS + 5
    )
    with pytest.raises(UnknownOutcome):
        processor.process(PAYLOAD)
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.communicate(timeout=SECONDS)[0] == "result first\n"
    assert processor.process(PAYLOAD).result == "first"


def _wait_until_stopped(pid: int) -> None:
    end = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end, "Expected the process to stop"
        time.sleep(0.02)
