"""A keyword that a method does not know is a TypeError: in both clients, both forms of the library, and settings."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring import DueJob, Mainspring, SyncMainspring
from mainspring.client import AsyncClient, Client
from mainspring.testing.fake_client import FakeMainspring
from mainspring.transactional import TimerWriter

SERVICES = ("timers", "jobs", "fetches", "namespaces")
NOW = datetime.now(UTC)
NEEDED = {"timers": (), "seconds": 1, "since": NOW, "until": NOW, "callback_url": "https://example.com/"}


def methods(kind: object) -> list[tuple[str, str]]:
    found = [
        (service, name)
        for service in SERVICES
        for name, method in inspect.getmembers(getattr(kind, service), callable)
        if not name.startswith("_") and (service, name) not in (("jobs", "declare"), ("jobs", "open"))
    ]
    assert len(found) > 35
    return found


async def ask(method: Callable[..., Any], **keywords: object) -> None:
    """With something for everything that has to be there."""
    needed = {
        name: NEEDED.get(name, "x")
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    answer = method(**needed, **keywords)
    if inspect.isawaitable(answer):
        await answer
    elif isinstance(answer, AsyncIterator):
        await anext(answer)
    elif isinstance(answer, Iterator):
        next(answer)


async def accepting(holder: Any) -> list[str]:
    """The methods that take a name which nobody has."""
    found: list[str] = []
    for service, name in methods(holder):
        try:
            await ask(getattr(getattr(holder, service), name), prefix_of_it="x")
        except TypeError as error:
            if "unexpected keyword argument 'prefix_of_it'" in str(error):
                continue
        found.append(f"{service}.{name}")
    return found


async def test_unknown_keywords_are_refused_by_every_method_that_awaits() -> None:
    assert await accepting((await FakeMainspring.start()).async_client()) == []
    async with Mainspring("memory://").at_rest() as ms:
        assert await accepting(ms) == []


async def test_unknown_keywords_are_refused_by_every_method_that_blocks() -> None:
    with SyncMainspring("memory://").at_rest() as ms:
        assert await accepting(ms) == []


def test_unknown_keywords_are_refused_by_every_method_of_the_sync_client() -> None:
    client = FakeMainspring.start_sync().client()
    assert asyncio.run(accepting(client)) == []


def test_both_clients_and_both_forms_of_the_library_have_the_same_methods() -> None:
    ms, sync_ms = Mainspring("memory://"), SyncMainspring("memory://")
    client, sync_client = AsyncClient("http://127.0.0.1:1"), Client("http://127.0.0.1:1")
    of_client = methods(client)
    assert methods(sync_client) == of_client
    assert methods(ms) == methods(sync_ms)
    assert {*methods(ms)} - {*of_client} == {("fetches", "run")}
    assert {*of_client} <= {*methods(ms)}


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    client: Any = FakeMainspring.start_sync().client()
    with pytest.raises(TypeError, match=r"argument 'prefix'; did you mean 'id_prefix'\?$"):
        client.timers.bulk_delete(labels={"team": "blue"}, prefix="drop-")
    with pytest.raises(TypeError, match=r"argument 'state'; did you mean 'states'\?$"):
        client.timers.list(state="parked")
    with pytest.raises(TypeError, match=r"argument 'colour'; expected one of .*labels"):
        client.timers.list(colour="blue")


def test_a_keyword_that_is_set_to_nothing_is_refused_too() -> None:
    client: Any = FakeMainspring.start_sync().client()
    with pytest.raises(TypeError, match=r"'resultUrl'; did you mean 'result_url'\?$"):
        client.fetches.create("https://example.com/", resultUrl=None)
    with pytest.raises(TypeError, match="'request'"):
        client.fetches.create("https://example.com/", request={})


async def test_unknown_settings_and_fields_of_functions_are_refused() -> None:
    kinds: tuple[Any, ...] = (Mainspring, SyncMainspring, TimerWriter)
    for kind in kinds:
        with pytest.raises(TypeError, match=r"'allow_lopback'; did you mean 'allow_loopback'\?$"):
            kind(allow_lopback=True)
    ms: Any = Mainspring("memory://")

    def report(job: DueJob) -> None: ...

    with pytest.raises(TypeError, match=r"'time_zone'; did you mean 'timezone'\?$"):
        ms.job("@daily", time_zone="Europe/Berlin")(report)

    writer: Any = TimerWriter()
    with pytest.raises(TypeError, match=r"'in_seconds'; did you mean"):
        writer.create(None, "t", in_seconds=5, handler="remind")
    with pytest.raises(TypeError, match=r"'in_seconds'; did you mean"):
        await writer.acreate(None, "t", in_seconds=5, handler="remind")
