"""A status that has come counts, whatever becomes of the body: the target has acted."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from mainspring.cluster.instance import Instance
from mainspring.fetches.messages import FetchView, ResponseView
from mainspring.testing.target import Answer, TargetServer
from tests.support.fetch_requests import asking, ended, until
from tests.support.raw_server import raw_server

HEAD = b"HTTP/1.1 201 Created\r\nx-order: 7\r\n"


async def response_to(instance: Instance, url: str, *, seconds: float = 5.0) -> ResponseView:
    asked = await instance.fetches.create(asking(url, "POST", timeout_seconds=seconds))
    view = await ended(instance.fetches, asked.req_id)
    assert (view.state, view.result and view.result.error) == ("succeeded", None)
    assert view.result is not None
    assert view.result.response is not None
    return view.result.response


@pytest.mark.parametrize(
    ("rest", "body", "problem"),
    [
        (b"content-length: 10\r\n\r\nhalf", b"half", "Expected an answer, got the end of the connection."),
        (
            b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense",
            b"half",
            "Expected an HTTP/1.1 answer, got something else.",
        ),
        (
            b"content-length: 5\r\ncontent-encoding: gzip\r\n\r\nplain",
            b"plain",
            "Expected gzip data, as the answer declared, got something else.",
        ),
        (
            b"content-length: 2\r\ncontent-encoding: br\r\n\r\n\xff\x00",
            b"\xff\x00",
            "Expected an uncompressed answer, got content-encoding 'br'.",
        ),
    ],
    ids=["cut", "not chunked", "not gzip", "not known"],
)
async def test_the_status_is_kept_with_the_body_as_it_came(
    instance: Instance, rest: bytes, body: bytes, problem: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + rest)
        await writer.drain()
        writer.close()

    async with raw_server(answer) as address:
        response = await response_to(instance, f"http://{address}/")
    assert (response.status, response.headers["x-order"], response.content) == (201, "7", body)
    assert (response.truncated, response.body_problem) == (True, problem)


async def test_the_status_is_kept_although_the_body_is_late(instance: Instance, target: TargetServer) -> None:
    target.script("/slow", Answer(status=201, body=b"x" * 100, behaviour="drip", drip_seconds=0.02))
    response = await response_to(instance, target.url + "/slow", seconds=0.3)
    assert (response.status, response.truncated) == (201, True)
    assert 0 < len(response.content) < 100
    assert response.body_problem == "Expected a whole answer within 0.3 s, got none."


async def test_a_list_says_what_became_of_the_body_and_the_origin_is_told(
    instance: Instance, target: TargetServer
) -> None:
    asked = asking(target.url + "/close-after-headers", "POST", req_id="b", result_url=target.url + "/result")
    await instance.fetches.create(asked)

    def delivered(view: FetchView) -> bool:
        return view.delivery.state == "delivered"

    view = await until(instance.fetches, "b", delivered)
    assert view.result is not None
    told = msgspec.json.decode(target.requests[-1].body)
    assert (told["state"], told["response"]["status"], told["response"]["truncated"]) == ("succeeded", 200, True)
    assert told["response"]["bodyProblem"].startswith("Expected an answer, got ")


async def test_every_set_cookie_stays_on_its_own(instance: Instance, target: TargetServer) -> None:
    first, second = "a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2; Path=/"
    target.script("/two", Answer(headers=(("set-cookie", first), ("set-cookie", second), ("x-a", "1"), ("x-a", "2"))))
    target.script("/one", Answer(headers=(("set-cookie", first),)))
    two = await response_to(instance, target.url + "/two")
    assert two.set_cookies == (first, second)
    assert two.headers["set-cookie"] == f"{first}, {second}"
    assert two.headers["x-a"] == "1, 2"
    assert (await response_to(instance, target.url + "/one")).set_cookies == (first,)
    assert (await response_to(instance, target.url + "/none")).set_cookies == ()


async def test_the_req_id_goes_out_as_the_idempotency_key_unless_there_is_one(
    instance: Instance, target: TargetServer
) -> None:
    await instance.fetches.create(asking(target.url + "/a", "POST", req_id="payment-7"))
    own = {"headers": {"Idempotency-Key": "mine"}}
    await instance.fetches.create(asking(target.url + "/b", "POST", req_id="payment-8", request=own))
    for req_id in ("payment-7", "payment-8"):
        await ended(instance.fetches, req_id)
    assert {request.path: request.headers["idempotency-key"] for request in target.requests} == {
        "/a": "payment-7",
        "/b": "mine",
    }


async def test_another_host_does_not_get_the_key(instance: Instance, target: TargetServer) -> None:
    async with TargetServer() as other:
        target.script("/", Answer(status=302, headers=(("location", other.url + "/there"),)))
        asked = await instance.fetches.create(asking(target.url + "/", request={"max_redirects": 1}))
        await ended(instance.fetches, asked.req_id)
        assert "idempotency-key" in target.requests[0].headers
        assert "idempotency-key" not in other.requests[0].headers
