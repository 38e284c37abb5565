"""Stores that are in use when a process forks: the child is told so, and the parent does not notice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers.fixtures import server_params
from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

# Says what happens in a child that was forked while the store was in use, in its parent, and in a child that was forked
# when the store was closed. Every wait is bounded by the alarm.
PROGRAM = """
import os, signal, sys
from mainspring.errors import ConfigError
from mainspring.idempotency import IdempotentProcessor
from tests.idempotency.places import store_at

store = store_at(sys.argv[1])
processor = IdempotentProcessor(store, str, scope="forks")

def in_a_child(number):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            print("child", processor.process(number).was_replay, flush=True)
        except ConfigError as error:
            print("refused:", error.detail, flush=True)
        store.close()
        os._exit(0)
    return os.waitpid(child, 0)[1]

processor.process(1)
print("ended", in_a_child(1))
print("parent", processor.process(1).was_replay, processor.process(2).was_replay, flush=True)
store.close()
print("ended", in_a_child(2), flush=True)
print("parent", processor.process(2).was_replay)
store.close()
"""


@pytest.mark.parametrize("shared_url", ["sqlite", *server_params("postgresql", "redis")], indirect=True)
def test_a_child_is_refused_a_store_that_was_in_use_at_the_fork_and_uses_one_that_was_closed(shared_url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, shared_url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=clean_environment()
    )
    refusal, *others = done.stdout.splitlines()
    assert refusal.startswith("refused: Expected a store that this process may use, got one that was in use"), done
    assert others == ["ended 0", "parent True False", "child True", "ended 0", "parent True"]
