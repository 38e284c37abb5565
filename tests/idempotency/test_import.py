"""The library is light: it loads nothing of a server, and no driver that is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mainspring.idempotency
from tests.support.running_server import clean_environment

HEAVY = {
    "aiohttp", "apsw", "asyncio", "asyncpg", "click", "httptools", "httpx", "logging", "redis", "rich", "starlette",
    "uvicorn", "uvloop", "yaml",
    "mainspring.api", "mainspring.cli", "mainspring.client", "mainspring.cluster", "mainspring.config",
    "mainspring.delivery", "mainspring.fetches", "mainspring.jobs", "mainspring.kernel", "mainspring.library",
    "mainspring.namespaces", "mainspring.origins", "mainspring.processes", "mainspring.stores", "mainspring.timers",
    "mainspring.transactional",
}  # fmt: skip
IMPORTS = pytest.mark.parametrize(
    "names",
    [
        "IdempotentProcessor, InMemoryStore, idempotent",
        "AsyncIdempotentProcessor, SQLiteStore, PostgresStore, RedisStore, UrlStore",
        "*",
    ],
)
RUNS = 5


def _run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=clean_environment() | environment,
    )
    return done.stdout


@IMPORTS
def test_importing_it_loads_nothing_of_a_server_and_no_driver(names: str) -> None:
    loaded = _run(f"import sys\nfrom mainspring.idempotency import {names}\nprint(*sys.modules)")
    assert HEAVY & set(loaded.split()) == set()


@IMPORTS
def test_importing_it_takes_no_time_worth_speaking_of(names: str, tmp_path: Path) -> None:
    """Little besides what every asynchronous program with messages imports, in the same minute on the same machine.

    With compiled files, as installed; processor time, in the one of several runs that others disturbed least.
    """
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def taken(what: str) -> float:
        program = f"import time; began = time.process_time()\n{what}\nprint(time.process_time() - began)"
        return min([float(_run(program, **compiled)) for _ in range(1 + RUNS)][1:])

    assert taken(f"from mainspring.idempotency import {names}") < 2 * taken("import asyncio, dataclasses, msgspec")


def test_every_public_name_is_there() -> None:
    for name in mainspring.idempotency.__all__:
        found = getattr(mainspring.idempotency, name)
        assert name.isupper() or found.__module__.startswith("mainspring.idempotency")
    assert not hasattr(mainspring.idempotency, "nothing")
