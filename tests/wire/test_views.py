"""Views as values: what was JSON is a Python value, and frameworks answer with them as the API does."""

from __future__ import annotations

import json
from typing import Any

import fastapi
import httpx
import msgspec
import pydantic
import pytest
from msgspec import Raw

from mainspring.client import AsyncClient
from mainspring.client.callback import Callback
from mainspring.fetches.messages import FetchResult, FetchView
from mainspring.jobs.messages import JobView, RunView
from mainspring.testing.fake_client import FakeMainspring
from mainspring.timers.messages import TimerPage, TimerView
from mainspring.wire.message import View

PAYLOAD = {"to": "Ann", "lines": [1, 2.5, None]}
URL = "https://example.com/"


async def views() -> dict[str, View]:
    """One of each kind, as a client gets them."""
    client: AsyncClient = (await FakeMainspring.start()).async_client()
    timer = await client.timers.create("t", callback_url=URL, delay_seconds=60, payload=PAYLOAD)
    return {
        "timer": timer,
        "page": await client.timers.list(),
        "history": await client.timers.history("t"),
        "job": await client.jobs.create("j", "@daily", url=URL, body=PAYLOAD),
        "fetch": await client.fetches.create(URL, context=PAYLOAD),
        "namespace": await client.namespaces.get("default"),
    }


async def test_json_in_a_view_is_a_value_and_stays_as_it_was_written() -> None:
    found: Any = await views()
    assert found["timer"].payload == found["job"].body == found["fetch"].context == PAYLOAD
    assert found["timer"].payload["to"] == "Ann"
    assert found["page"].timers[0].payload == PAYLOAD
    written = Raw(b'{"n":  1.0}')
    client = (await FakeMainspring.start()).async_client()
    timer = await client.timers.create("t", callback_url=URL, delay_seconds=60, payload=written)
    assert (bytes(timer.payload_json), timer.payload) == (bytes(written), {"n": 1.0})
    without = await client.timers.create("u", callback_url=URL, delay_seconds=60)
    assert without.payload is None


async def test_a_view_is_shown_with_its_values() -> None:
    found = await views()
    assert f"payload={PAYLOAD!r}" in repr(found["timer"])
    assert f"body={PAYLOAD!r}" in repr(found["job"])
    assert not [name for name, view in found.items() if "Raw" in repr(view)]


def test_no_view_holds_json_that_only_msgspec_can_read() -> None:
    """A field that is kept as it was written has a property that is its value."""
    kinds = [View]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {TimerView, JobView, FetchView, FetchResult, Callback, RunView, TimerPage} <= {*kinds}
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            if field.type is Raw:
                assert field.name == f"{field.encode_name}_json"
                assert isinstance(getattr(kind, field.encode_name), property)


async def test_a_view_as_a_dict_is_the_json_of_the_api() -> None:
    for view in (await views()).values():
        assert dict(view) == json.loads(msgspec.json.encode(view))
        assert json.loads(json.dumps(dict(view))) == dict(view)


@pytest.mark.parametrize("annotated", [False, True])
async def test_fastapi_answers_with_a_view_as_the_api_does(annotated: bool) -> None:
    found = await views()
    app = fastapi.FastAPI()
    for name, view in found.items():

        async def endpoint(view: View = view) -> View:
            return view

        kind = type(view) if annotated else None
        app.add_api_route(f"/{name}", _without_arguments(endpoint), response_model=kind)
        app.add_api_route(f"/all/{name}", _without_arguments(endpoint, in_a_dict=True))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
        for name, view in found.items():
            assert (await http.get(f"/{name}")).json() == json.loads(msgspec.json.encode(view))
            assert (await http.get(f"/all/{name}")).json() == {"view": dict(view)}
        document = (await http.get("/openapi.json")).json()
    if annotated:
        described = document["paths"]["/timer"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert {"timerId", "payload", "lastOutcome"} <= described["properties"].keys()
        assert "$defs" not in json.dumps(described)


def _without_arguments(endpoint: Any, *, in_a_dict: bool = False) -> Any:
    async def answer() -> Any:
        view = await endpoint()
        return {"view": view} if in_a_dict else view

    return answer


async def test_pydantic_takes_views_as_fields_and_reads_the_json_of_the_api() -> None:
    timer = (await views())["timer"]

    class Page(pydantic.BaseModel):
        timer: TimerView

    page = Page(timer=timer)  # type: ignore[arg-type]
    assert page.timer is timer
    assert Page.model_validate_json(page.model_dump_json()).timer == timer
    with pytest.raises(pydantic.ValidationError):
        Page.model_validate({"timer": {"timerId": 5}})
