"""Servers as fixtures, and what a run says when one is missing.

- `postgresql`, `mysql`, `mongodb`, `cassandra`, `dynamodb`, `redis`, `amqp`, `chromium`: the server of that name,
  shared by the whole run. Take a place of your own with `fresh()`, and leave the server running.
- `start_server("postgresql")` starts one for this test alone, to be killed, paused and started again. A test that
  uses it says so: `@pytest.mark.server("postgresql")`.
- `fleet.get(SERVERS[name])` is the shared server by name, for parameters that come from `server_params(...)`.
- `store_url` is an empty store that several processes can share, on one database after the other.

Tests that need servers carry the marker `server`; `-m "not server"` leaves them out. A test whose server cannot be
obtained is skipped, and the end of the run names the server; in continuous integration (`CI=true`), the run fails.

Where tests run in several processes (`--dist loadgroup`), those of one server share a process, and so the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.servers.cassandra import Cassandra
from tests.servers.catalogue import SERVERS
from tests.servers.chromium import Chromium
from tests.servers.ci import in_ci
from tests.servers.dynamodb import DynamoDB
from tests.servers.fleet import Fleet
from tests.servers.mongodb import MongoDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.servers.server import Server

_MISSING = pytest.StashKey[dict[str, str]]()


def server_params(*names: str) -> list[ParameterSet]:
    """Parameters of a fixture or test that stand for servers."""
    return [pytest.param(name, marks=pytest.mark.server(name)) for name in names]


SHARED_STORES = ["sqlite", *server_params("postgresql", "mysql", "mongodb")]


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    config = request.config
    # One process of several gets some of the tests, and does not know which.
    is_alone = not hasattr(config, "workerinput")
    fleet = Fleet({name for item in request.session.items for name in _needs(item)} if is_alone else ())
    config.stash[_MISSING] = fleet.missing
    yield fleet
    fleet.close()
    getattr(config, "workeroutput", {})["missing"] = fleet.missing


@pytest.fixture(params=SHARED_STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVERS[request.param]).fresh()


@pytest.fixture
def start_server(fleet: Fleet) -> Iterator[Callable[[str], Server]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(fleet.start(SERVERS[name]))


@pytest.fixture(scope="session")
def postgresql(fleet: Fleet) -> PostgreSQL:
    return fleet.get(PostgreSQL)


@pytest.fixture(scope="session")
def mysql(fleet: Fleet) -> MySQL:
    return fleet.get(MySQL)


@pytest.fixture(scope="session")
def mongodb(fleet: Fleet) -> MongoDB:
    return fleet.get(MongoDB)


@pytest.fixture(scope="session")
def cassandra(fleet: Fleet) -> Cassandra:
    return fleet.get(Cassandra)


@pytest.fixture(scope="session")
def dynamodb(fleet: Fleet) -> DynamoDB:
    return fleet.get(DynamoDB)


@pytest.fixture(scope="session")
def redis(fleet: Fleet) -> Redis:
    return fleet.get(Redis)


@pytest.fixture(scope="session")
def amqp(fleet: Fleet) -> RabbitMQ:
    return fleet.get(RabbitMQ)


@pytest.fixture(scope="session")
def chromium(fleet: Fleet) -> Chromium:
    return fleet.get(Chromium)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'server(*names): needs these servers; deselect with -m "not server"')


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a server's fixture is a test of that server."""
    for item in items:
        for name in SERVERS.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server(name))
        if needs := _needs(item):
            item.add_marker(pytest.mark.xdist_group(min(needs, key=list(SERVERS).index)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a process that ran some of the tests says at its end."""
    node.config.stash.setdefault(_MISSING, {}).update(getattr(node, "workeroutput", {}).get("missing", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if in_ci() and session.config.stash.get(_MISSING, None) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if missing := config.stash.get(_MISSING, None):
        terminalreporter.section("servers and tools that were not tested with", red=True, bold=True)
        for name, reason in missing.items():
            terminalreporter.line(f"{name}: {reason}", red=True)


def _needs(item: pytest.Item) -> set[str]:
    return {name for marker in item.iter_markers("server") for name in marker.args}
