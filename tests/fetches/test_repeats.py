"""A reqId names one call: a repeat gets it, and whoever asks for another call under it is refused."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.cluster.instance import Instance
from mainspring.errors import ReqIdReuse
from mainspring.fetches.messages import CreateFetch, FetchView
from mainspring.fetches.record import FETCHES, Fetch, decode, encode
from mainspring.testing.fake_client import FakeMainspring
from mainspring.testing.target import TargetServer
from tests.support.fetch_requests import asking, ended

URL = "https://example.com/pay"


def paying(url: str = URL, method: Any = "POST", *, body: str = "12", **fields: Any) -> CreateFetch:
    return asking(url, method, request={"body": body}, req_id="p", **fields)


@pytest.mark.parametrize(
    ("other", "pointer"),
    [
        (paying(method="PUT"), "/request/method"),
        (paying(URL + "?n=2"), "/request/url"),
        (paying(body="13"), "/request/body"),
        (asking(URL, "POST", req_id="p"), "/request/body"),
        (paying(result_url="https://example.com/results"), "/resultUrl"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_another_request_under_a_req_id_is_refused_and_its_difference_named(
    other: CreateFetch, pointer: str
) -> None:
    client = (await FakeMainspring.start())._instance.fetches
    await client.create(paying())
    with pytest.raises(ReqIdReuse, match="choose another reqId") as refused:
        await client.create(other)
    assert [error.pointer for error in refused.value.errors] == [pointer]


async def test_what_may_change_from_try_to_try_does_not_make_it_another_request() -> None:
    fetches = (await FakeMainspring.start())._instance.fetches
    first = await fetches.create(paying(context=Raw(b"1")))
    in_base64 = {"body_base64": base64.b64encode(b"12").decode(), "headers": {"authorization": "Bearer newer"}}
    again = asking(URL, "POST", request=in_base64, req_id="p", timeout_seconds=5.0, labels={"try": "2"})
    assert await fetches.create(again) == first


async def test_it_is_refused_after_the_end_too_when_the_body_is_no_longer_kept(
    instance: Instance, target: TargetServer
) -> None:
    url = target.url + "/"
    await instance.fetches.create(paying(url))
    done = await ended(instance.fetches, "p")
    assert (await instance.fetches.create(paying(url))).result == done.result
    with pytest.raises(ReqIdReuse):
        await instance.fetches.create(paying(url, body="13"))
    assert len(target.requests) == 1


async def test_of_many_different_requests_at_once_one_is_accepted(instance: Instance, target: TargetServer) -> None:
    creates = (instance.fetches.create(paying(f"{target.url}/{n}")) for n in range(20))
    told = await asyncio.gather(*creates, return_exceptions=True)
    [accepted] = [view for view in told if isinstance(view, FetchView)]
    assert sum(isinstance(view, ReqIdReuse) for view in told) == 19
    await ended(instance.fetches, "p")
    assert [target.url + request.path for request in target.requests] == [accepted.url]


async def test_a_record_of_an_earlier_version_is_returned_whatever_is_asked_for(instance: Instance) -> None:
    await instance.fetches.create(paying("http://127.0.0.1:9/"))
    await ended(instance.fetches, "p")
    now = instance.clock.now_ms()
    record = await instance.store.get_record(FETCHES, "p", now=now)
    assert record is not None
    older: Fetch = replace(decode(record.value), fingerprint="")
    assert "fingerprint" not in msgspec.json.decode(encode(older))
    await instance.store.put_record(
        FETCHES, "p", encode(older), expect=record.version, now=now, expires_at=record.expires_at
    )
    assert (await instance.fetches.create(paying("http://127.0.0.1:10/"))).url == "http://127.0.0.1:9/"


async def test_the_api_answers_422_and_the_clients_raise_the_same_error() -> None:
    fake = await FakeMainspring.start()
    async with fake.async_client() as client:
        await client.fetches.create(URL, method="POST", body="12", req_id="p")
        with pytest.raises(ReqIdReuse) as refused:
            await client.fetches.create(URL, method="POST", body="13", req_id="p")
    assert [error.pointer for error in refused.value.errors] == ["/request/body"]
    answers = fake.openapi()["paths"]["/v1/fetches/create"]["post"]["responses"]
    assert answers["422"]["$ref"].endswith("/req_id_reuse")


async def test_the_library_raises_it(target: TargetServer) -> None:
    async with Mainspring("memory://", allow_loopback=True) as ms:
        await ms.fetch(target.url + "/", req_id="p")
        with pytest.raises(ReqIdReuse):
            await ms.fetch(target.url + "/other", req_id="p")
        assert (await ms.fetch(target.url + "/", req_id="p")).state == "succeeded"
    assert len(target.requests) == 1
