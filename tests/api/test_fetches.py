"""The fetch routes at the HTTP edge; what the service does behind them is tested with it."""

from __future__ import annotations

import pytest

from mainspring.api.app import build_app
from tests.support.exchanges import call
from tests.support.service_doubles import Edge, keyed

CREATE = b'{"reqId":"a","request":{"url":"https://example.com/x","method":"POST","body":"{}"},"context":{"order":  42}}'


async def test_a_create_reaches_the_service_with_its_context_byte_for_byte() -> None:
    edge = Edge()
    answer = await call(build_app(edge.api), "/v1/fetches/create", CREATE)
    assert (answer.status, answer.json()["reqId"], answer.json()["state"]) == (200, "a", "pending")
    assert edge.fetches.created is not None
    assert bytes(edge.fetches.created.context) == b'{"order":  42}'  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        ("reqId", '"a b"', "/reqId"),
        ("reqId", '""', "/reqId"),
        ("reqId", '"a\\n"', "/reqId"),
        ("timeoutSeconds", "0", "/timeoutSeconds"),
        ("timeoutSeconds", "86401", "/timeoutSeconds"),
        ("executor", '"Big Pool"', "/executor"),
        ("executor", '"far\\n"', "/executor"),
        ("deliverySeconds", "0", "/deliverySeconds"),
        ("request", '{"url":"https://example.com/","method":"TRACE"}', "/request/method"),
        ("request", '{"url":"https://example.com/","maxRedirects":11}', "/request/maxRedirects"),
        ("request", '{"url":"https://example.com/","payload":1}', "/request/payload"),
        ("state", '"running"', "/state"),
    ],
)
async def test_a_wrong_field_of_a_fetch_is_named(field: str, value: str, pointer: str) -> None:
    others = {"request": '{"url":"https://example.com/"}', field: value}
    body = "{" + ",".join(f'"{name}":{text}' for name, text in others.items()) + "}"
    answer = await call(build_app(Edge().api), "/v1/fetches/create", body.encode())
    assert (answer.status, answer.code) == (400, "invalid_input")
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_the_other_routes_answer() -> None:
    app = build_app(Edge().api)
    for path, body in (
        ("get", b'{"reqId":"a"}'),
        ("cancel", b'{"reqId":"a"}'),
        ("list", b'{"states":["unknown"]}'),
        ("redeliver", b'{"reqId":"a"}'),
        ("redeliver", b'{"all":true,"dryRun":true}'),
        ("stats", b"{}"),
    ):
        assert (await call(app, f"/v1/fetches/{path}", body)).status == 200, path


async def test_a_repeat_with_the_key_of_a_create_asks_for_no_second_call() -> None:
    edge = Edge()
    app = build_app(keyed(edge))
    body = b'{"request":{"url":"https://example.com/x"}}'
    first = await call(app, "/v1/fetches/create", body, headers={"idempotency-key": "k"})
    assert (first.status, edge.fetches.created is not None) == (200, True)
    edge.fetches.created = None
    again = await call(app, "/v1/fetches/create", body, headers={"idempotency-key": "k"})
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json()["reqId"] == first.json()["reqId"]
    assert edge.fetches.created is None
    other = await call(app, "/v1/fetches/create", CREATE, headers={"idempotency-key": "k"})
    assert (other.status, other.code) == (422, "key_reuse")


async def test_a_fetch_needs_the_token() -> None:
    assert (await call(build_app(Edge().api), "/v1/fetches/create", CREATE, token=None)).status == 401
