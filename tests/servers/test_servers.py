"""The servers themselves: they start, freeze, die, come back, and never outlive the run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.postgresql import PostgreSQL
from tests.servers.process import accepts_connections
from tests.servers.server import Server

ROOT = Path(__file__).parents[2]

START_ONE_AND_WAIT = """
import sys, time
from tests.servers.redis import Redis
server = Redis()
server.obtain()
server.start()
print(server.pid, server.directory, flush=True)
time.sleep(60)
"""

ONE_TEST_WITHOUT_ITS_SERVER = """
import pytest
from tests.servers.catalogue import SERVERS
from tests.servers.sources import Unobtainable
from tests.servers.redis import Redis

class Missing(Redis):
    name = "missing"
    def obtain(self):
        raise Unobtainable("Expected a server, got none. Install it with: apt-get install it")

SERVERS["missing"] = Missing

@pytest.mark.server("missing")
def test_that_cannot_run(start_server):
    start_server("missing")

def test_that_needs_no_server():
    pass
"""


def is_closed(port: int) -> bool:
    """Within a few seconds: the children of a server that was killed may live a little longer."""
    until = time.monotonic() + 10
    while accepts_connections(port) and time.monotonic() < until:
        time.sleep(0.05)
    return not accepts_connections(port)


@pytest.mark.parametrize("name", server_params(*SERVERS))
def test_a_killed_server_comes_back_at_its_address(name: str, start_server: Callable[[str], Server]) -> None:
    server = start_server(name)
    url, first = server.url("place"), server.pid
    assert url.startswith(f"{name}://")
    server.kill()
    assert is_closed(server.port)
    server.start()
    assert server.ready()
    assert (server.url("place"), server.pid == first) == (url, False)


@pytest.mark.server("postgresql")
def test_what_was_committed_survives_a_kill_and_an_orderly_end(start_server: Callable[[str], Server]) -> None:
    server = start_server("postgresql")
    assert isinstance(server, PostgreSQL)
    server.execute("CREATE TABLE t AS SELECT 42 AS n")
    for end in (server.kill, server.stop):
        end()
        server.start()
        assert server.execute("SELECT n FROM t").strip() == "42"


@pytest.mark.server("postgresql")
def test_a_paused_server_answers_nobody_until_it_is_resumed(start_server: Callable[[str], Server]) -> None:
    server = start_server("postgresql")
    assert isinstance(server, PostgreSQL)
    query = [f"--port={server.port}", "--host=127.0.0.1", "--username=postgres", "--command=SELECT 1"]
    server.pause()
    with subprocess.Popen(["/usr/lib/postgresql/15/bin/psql", *query], stdout=subprocess.DEVNULL) as client:
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.3)
        server.resume()
        assert client.wait(20) == 0


def test_two_places_of_one_server_do_not_see_each_other(postgresql: PostgreSQL) -> None:
    one, other = (urlsplit(postgresql.fresh()).path[1:] for _ in range(2))
    postgresql.execute("CREATE TABLE t (n integer)", database=one)
    assert postgresql.execute("SELECT to_regclass('t')", database=other).strip() == ""


@pytest.mark.server("redis")
def test_a_server_does_not_outlive_a_run_that_is_killed() -> None:
    command = [sys.executable, "-c", START_ONE_AND_WAIT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        pid, directory = run.stdout.readline().split()
        run.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() or Path(directory).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("environment", "status"), [({}, 0), ({"CI": "false"}, 0), ({"CI": "0"}, 0), ({"CI": "true"}, 1), ({"CI": "1"}, 1)]
)
@pytest.mark.parametrize("processes", [[], ["--numprocesses=2", "--dist=loadgroup"]], ids=["alone", "in-processes"])
@pytest.mark.slow
def test_a_missing_server_is_named_at_the_end_and_fails_only_in_ci(
    environment: dict[str, str], status: int, processes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(textwrap.dedent(ONE_TEST_WITHOUT_ITS_SERVER))
    command = [sys.executable, "-m", "pytest", "-p", "tests.servers.fixtures", "-p", "no:cacheprovider", str(tmp_path)]
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    run = subprocess.run(
        [*command, *processes, f"--rootdir={tmp_path}", "--strict-markers"],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == status, run.stdout
    assert "1 passed, 1 skipped" in run.stdout
    assert "missing: Expected a server, got none. Install it with: apt-get install it" in run.stdout
