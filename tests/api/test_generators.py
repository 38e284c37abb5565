"""Clients that generators make from the document: they have the fields of every message, and a server understands them.

In the whole run, and not apart from it: the document changes with every message, and only generators know what they
make of it. They are obtained once, and take a few seconds each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.api.app import all_routes
from mainspring.api.openapi import openapi_document
from tests.servers import generators
from tests.servers.fleet import Fleet
from tests.servers.sources import Unobtainable
from tests.support.running_server import Running, running_server
from tests.support.service_doubles import Edge

pytestmark = pytest.mark.slow

Use = Callable[[str], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("server"), "memory://") as running:
        yield running


@pytest.fixture
def generated(tmp_path: Path, fleet: Fleet) -> Callable[[Callable[[Path, Path], Use]], Use]:
    routes = tuple(route for route in all_routes(Edge().api) if route.tag != "docs")
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(openapi_document(routes, version="1.0.0")))

    def generate(generator: Callable[[Path, Path], Use]) -> Use:
        try:
            return generator(document, tmp_path)
        except Unobtainable as error:
            fleet.missing[generator.__name__] = str(error)
            pytest.skip(f"{generator.__name__}: {error}")

    return generate


PYTHON_CLIENT = """
import datetime
from client import AuthenticatedClient
from client.api.timers import timers_create, timers_create_batch, timers_get, timers_update
from client.models import BatchView, CreateTimer, CreateTimers, Problem, TimerRef, TimerView, UpdateTimer

asked = CreateTimer(timer_id="tea", callback_url="http://127.0.0.1:9/", delay_seconds=60, payload={"to": "Ann"})
with AuthenticatedClient(base_url=URL, token=TOKEN) as client:
    made = timers_create.sync(client=client, body=asked, x_correlation_id="order-42")
    assert isinstance(made, TimerView), made
    assert made.payload == {"to": "Ann"}
    assert isinstance(made.created_at, datetime.datetime)
    assert made.headers["x-correlation-id"] == "order-42"
    later = timers_update.sync(client=client, body=UpdateTimer(timer_id="tea", execute_at=made.execute_at))
    assert isinstance(later, TimerView) and later.generation == 2, later
    both = timers_create_batch.sync(client=client, body=CreateTimers(timers=[asked, asked]))
    assert isinstance(both, BatchView) and both.created == 2, both
    absent = timers_get.sync(client=client, body=TimerRef(timer_id="coffee"))
    assert isinstance(absent, Problem) and absent.code == "not_found", absent
"""


def test_openapi_python_client_makes_one_that_works(
    generated: Callable[[Callable[[Path, Path], Use]], Use], server: Running
) -> None:
    run = generated(generators.openapi_python_client)
    run(f"URL, TOKEN = {server.url!r}, {server.token!r}\n{PYTHON_CLIENT}")


GENERATOR = """
import datetime
from openapi_client import ApiClient, ApiException, Configuration, CreateTimer, CreateTimers, TimerRef, TimersApi
from openapi_client import UpdateTimer

asked = CreateTimer(timerId="milk", callbackUrl="http://127.0.0.1:9/", delaySeconds=60, payload={"to": "Ann"})
with ApiClient(Configuration(host=URL, access_token=TOKEN)) as client:
    timers = TimersApi(client)
    made = timers.timers_create(asked, x_correlation_id="order-42")
    assert made.payload == {"to": "Ann"}
    assert isinstance(made.created_at, datetime.datetime)
    assert made.headers["x-correlation-id"] == "order-42"
    later = timers.timers_update(UpdateTimer(timerId="milk", delaySeconds=120))
    assert later.generation == 2
    both = timers.timers_create_batch(CreateTimers(timers=[asked, asked]))
    assert (both.created, both.results[0].timer.timer_id) == (2, "milk")
    try:
        timers.timers_get(TimerRef(timerId="coffee"))
    except ApiException as error:
        assert error.status == 404
    else:
        raise AssertionError
"""


def test_openapi_generator_makes_a_python_client_that_works(
    generated: Callable[[Callable[[Path, Path], Use]], Use], server: Running
) -> None:
    run = generated(generators.openapi_generator)
    run(f"URL, TOKEN = {server.url!r}, {server.token!r}\n{GENERATOR}")


TYPES = """
import type { components } from "./api";
type Schemas = components["schemas"];
const asked: Schemas["CreateTimer"] = { timerId: "tea", callbackUrl: "https://example.com/", delaySeconds: 60 };
const at: Schemas["CreateTimer"] = { timerId: "tea", callbackUrl: "https://example.com/", executeAt: "2030-01-01" };
const many: Schemas["CreateTimers"] = { timers: [asked, at] };
const changed: Schemas["UpdateTimer"] = { timerId: "tea", labels: { tenant: "acme" } };
// @ts-expect-error a timer has no such field
const wrong: Schemas["CreateTimer"] = { timerId: "tea", callbackUrl: "https://example.com/", inSeconds: 60 };
// @ts-expect-error an item of a batch is a timer
const none: Schemas["CreateTimers"] = { timers: [{ }] };
export const used = [many, changed, wrong, none];
"""


def test_openapi_typescript_makes_types_that_know_the_fields(
    generated: Callable[[Callable[[Path, Path], Use]], Use],
) -> None:
    check = generated(generators.openapi_typescript)
    check(TYPES)
