"""The library is light: it loads nothing of a server, and no driver that is not used."""

from __future__ import annotations

import subprocess
import sys

import mainspring.idempotency
from tests.client.running_server import clean_environment

HEAVY = {
    "apsw", "asyncio", "asyncpg", "click", "httptools", "redis", "rich", "uvicorn", "uvloop", "yaml",
    "mainspring.api", "mainspring.cli", "mainspring.client", "mainspring.config", "mainspring.delivery",
    "mainspring.instance", "mainspring.kernel", "mainspring.library", "mainspring.server", "mainspring.stores",
    "mainspring.timers", "mainspring.transactional",
}  # fmt: skip
MILLISECONDS = 60


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=clean_environment()
    )
    return done.stdout


def test_importing_it_loads_nothing_of_a_server() -> None:
    loaded = _run(
        "import sys; from mainspring.idempotency import IdempotentProcessor, InMemoryStore, idempotent\n"
        "print(*sys.modules)"
    )
    assert HEAVY & set(loaded.split()) == set()


def test_importing_it_takes_no_time_worth_speaking_of() -> None:
    program = "import time; t = time.process_time(); import mainspring.idempotency; print(time.process_time() - t)"
    assert min(float(_run(program)) for _ in range(3)) * 1000 < MILLISECONDS


def test_every_public_name_is_there() -> None:
    for name in mainspring.idempotency.__all__:
        found = getattr(mainspring.idempotency, name)
        assert name.isupper() or found.__module__.startswith("mainspring.idempotency")
    assert not hasattr(mainspring.idempotency, "nothing")
