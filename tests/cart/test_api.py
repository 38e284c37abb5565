"""Carts over HTTP: what is answered, and what is said when something is wrong with a request."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.errors import StoreUnavailable
from telecom_cart.api.correlation import CorrelationFilter
from telecom_cart.checks import MAX_ITEMS, MAX_PRICE, MAX_QUANTITY
from telecom_cart.providers.faults import FaultKind
from tests.cart.serving import PHONE, PLAN, Served, served

CART_FIELDS = {
    *("id", "userId", "version", "items", "province", "currency", "totals", "createdAt", "updatedAt"),
    *("lastAccessedAt", "externalCartId", "syncStatus", "lastSyncedAt", "lastSyncError", "checkoutStatus"),
    *("checkoutStartedAt", "checkoutCompletedAt", "checkoutResult", "checkoutError", "attempt"),
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def cart() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert isinstance(body["retryable"], bool)
    assert body["detail"]
    assert body["correlationId"] == response.headers["x-correlation-id"]
    return body


def pointers(body: dict[str, Any]) -> list[str]:
    return [each["pointer"] for each in body["errors"]]


# --- carts ----------------------------------------------------------------------------------------------------


async def test_a_cart_is_begun_by_reading_it_and_shows_every_field(cart: Served) -> None:
    response = await cart.client.get("/v1/carts/ann")
    body = response.json()
    assert body.keys() == CART_FIELDS
    assert response.headers["etag"] == f'"{body["version"]}"'
    assert response.headers["cache-control"] == "no-store"
    assert (body["userId"], body["items"], body["province"], body["currency"]) == ("ann", [], None, "CAD")
    assert (body["syncStatus"], body["checkoutStatus"]) == ("synced", "pending")
    assert all(INSTANT.fullmatch(body[name]) for name in ("createdAt", "updatedAt", "lastAccessedAt"))
    assert (await cart.cart())["id"] == body["id"]


async def test_an_item_is_added_known_to_the_platform_soon_and_adds_up(cart: Served) -> None:
    body = (await cart.add()).json()
    assert body["items"] == [{**PHONE, "lineTotal": 799_00}]
    assert body["syncStatus"] == "pending"
    await cart.synced()
    body = await cart.cart()
    assert body["syncStatus"] == "synced"
    assert INSTANT.fullmatch(body["lastSyncedAt"])
    assert body["externalCartId"] == cart.platform.baskets[body["externalCartId"]].id
    body = (await cart.add(item={**PHONE, "quantity": 2})).json()
    assert [item["quantity"] for item in body["items"]] == [3]


async def test_a_secret_in_the_platforms_id_of_a_basket_is_not_shown(
    cart: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cart.platform, "next_id", lambda prefix: f"gid://{prefix}?key=secret")
    await cart.add()
    await cart.synced()
    body = await cart.cart()
    assert body["externalCartId"] == "gid://b"
    assert "secret" not in str(body)


async def test_taxes_are_not_determined_without_a_province_and_change_with_it(cart: Served) -> None:
    totals = (await cart.add()).json()["totals"]
    assert totals == {"currency": "CAD", "subtotal": 799_00, "taxes": None, "tax": None, "total": 799_00}
    response = await cart.client.put("/v1/carts/ann/province", json={"province": "QC"})
    totals = response.json()["totals"]
    taxes = [{"name": "GST", "rate": 5_000, "amount": 39_95}, {"name": "QST", "rate": 9_975, "amount": 79_70}]
    assert (totals["taxes"], totals["tax"], totals["total"]) == (taxes, 119_65, 918_65)
    summary = (await cart.client.get("/v1/carts/ann/summary")).json()
    assert (summary["totals"], summary["quantity"], summary["province"]) == (totals, 1, "QC")
    response = await cart.client.put("/v1/carts/ann/province", json={"province": None})
    assert response.json()["totals"]["taxes"] is None


async def test_quantities_are_set_items_taken_out_and_carts_removed(cart: Served) -> None:
    await cart.add()
    await cart.add(item=PLAN)
    body = (await cart.client.put("/v1/carts/ann/items/phone-1", json={"quantity": 5})).json()
    assert [item["quantity"] for item in body["items"]] == [5, 2]
    body = (await cart.client.put("/v1/carts/ann/items/phone-1", json={"quantity": 0})).json()
    assert [item["productId"] for item in body["items"]] == ["plan-20"]
    assert (await cart.client.delete("/v1/carts/ann/items/plan-20")).json()["items"] == []
    assert (await cart.client.delete("/v1/carts/ann")).status_code == 204
    problem(await cart.client.delete("/v1/carts/ann"), 404, "CART_NOT_FOUND")


async def test_what_is_not_there_is_said_to_be_not_there(cart: Served) -> None:
    problem(await cart.client.get("/v1/carts/ann/summary"), 404, "CART_NOT_FOUND")
    problem(await cart.client.put("/v1/carts/ann/items/x", json={"quantity": 1}), 404, "CART_NOT_FOUND")
    problem(await cart.check_out(), 404, "CART_NOT_FOUND")
    await cart.cart()
    problem(await cart.client.put("/v1/carts/ann/items/x", json={"quantity": 1}), 404, "ITEM_NOT_FOUND")
    problem(await cart.client.delete("/v1/carts/ann/items/x"), 404, "ITEM_NOT_FOUND")
    problem(await cart.client.get("/v1/orders/order-x"), 404, "ORDER_NOT_FOUND")


# --- ETag, If-Match -------------------------------------------------------------------------------------------


async def test_a_change_of_another_state_than_the_one_seen_is_refused(cart: Served) -> None:
    seen = (await cart.add()).headers["etag"]
    assert (await cart.add(If_Match=seen)).status_code == 200
    for response in (
        await cart.add(If_Match=seen),
        await cart.client.put("/v1/carts/ann/items/phone-1", json={"quantity": 1}, headers={"If-Match": seen}),
        await cart.client.delete("/v1/carts/ann/items/phone-1", headers={"If-Match": seen}),
        await cart.client.put("/v1/carts/ann/province", json={"province": "ON"}, headers={"If-Match": seen}),
        await cart.client.delete("/v1/carts/ann", headers={"If-Match": seen}),
        await cart.check_out(If_Match=seen),
        await cart.add(If_Match=f"W/{seen}"),
    ):
        problem(response, 412, "PRECONDITION_FAILED")
    assert (await cart.cart())["items"][0]["quantity"] == 2


async def test_any_state_will_do_for_a_star_but_there_has_to_be_one(cart: Served) -> None:
    problem(await cart.add(If_Match="*"), 412, "PRECONDITION_FAILED")
    await cart.add()
    assert (await cart.add(If_Match="*")).status_code == 200


@pytest.mark.parametrize("tag", ["abc.1", '"a", "b"', '"', '""', "**", '"a b"'])
async def test_a_tag_that_is_none_is_named(cart: Served, tag: str) -> None:
    assert pointers(problem(await cart.add(If_Match=tag), 400, "VALIDATION_ERROR")) == ["If-Match"]


async def test_the_tag_does_not_change_when_only_the_platform_got_to_know_the_cart(cart: Served) -> None:
    seen = (await cart.add()).headers["etag"]
    await cart.synced()
    assert (await cart.client.get("/v1/carts/ann")).headers["etag"] == seen


# --- what is wrong with a request -----------------------------------------------------------------------------


async def test_every_wrong_field_is_named(cart: Served) -> None:
    item = {"productId": "a/b", "name": " ", "type": "car", "quantity": 0, "price": -1, "a/b~c": 1}
    body = problem(await cart.add(item=item), 400, "VALIDATION_ERROR")
    assert sorted(pointers(body)) == ["/a~1b~0c", "/name", "/price", "/productId", "/quantity", "/type"]
    body = problem(await cart.add(item={}), 400, "VALIDATION_ERROR")
    assert sorted(pointers(body)) == ["/name", "/price", "/productId", "/type"]
    response = await cart.client.put("/v1/carts/ann/province", json={"province": "XX", "more": 1})
    assert sorted(pointers(problem(response, 400, "VALIDATION_ERROR"))) == ["/more", "/province"]
    response = await cart.check_out(body={"cartId": 7, "more": 1})
    assert sorted(pointers(problem(response, 400, "VALIDATION_ERROR"))) == ["/cartId", "/more"]
    response = await cart.client.put("/v1/carts/~/items/~", json={"quantity": -1}, headers={"If-Match": "bare"})
    expected = ["/productId", "/quantity", "/userId", "If-Match"]
    assert sorted(pointers(problem(response, 400, "VALIDATION_ERROR"))) == expected
    response = await cart.check_out("~", body={"cartId": 7}, If_Match="bare", Idempotency_Key="k k")
    expected = ["/cartId", "/userId", "Idempotency-Key", "If-Match"]
    assert sorted(pointers(problem(response, 400, "VALIDATION_ERROR"))) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("quantity", value) for value in (0, -1, MAX_QUANTITY + 1, 1.0, True, "1", None, 10**400)],
        *[("price", value) for value in (-1, MAX_PRICE + 1, 1.5, False, "1", None)],
        *[("name", value) for value in ("", "\u202e", "x" * 201, 5, "a\nb", ["a"])],
        *[("productId", value) for value in ("", ".", "-a", "x" * 101, "a b", "ä", "a\x00", None)],
        *[("type", value) for value in ("DEVICE", None, ["device"], {"a": 1})],
    ],
)
async def test_a_field_beyond_its_limits_is_refused(cart: Served, field: str, value: object) -> None:
    body = problem(await cart.add(item={**PHONE, field: value}), 400, "VALIDATION_ERROR")
    assert pointers(body) == [f"/{field}"]


async def test_fields_at_their_limits_are_taken(cart: Served) -> None:
    item = {**PHONE, "productId": "x" * 100, "name": "ä" * 200, "quantity": MAX_QUANTITY, "price": MAX_PRICE}
    body = (await cart.add(item=item)).json()
    assert body["totals"]["subtotal"] == MAX_QUANTITY * MAX_PRICE
    assert pointers(problem(await cart.add(item={**item, "quantity": 1}), 400, "VALIDATION_ERROR")) == ["/quantity"]
    assert (await cart.add(item={**PHONE, "price": 0})).status_code == 200
    for number in range(MAX_ITEMS - 2):
        assert (await cart.add(item={**PHONE, "productId": f"p{number}"})).status_code == 200
    response = await cart.add(item={**PHONE, "productId": "one-too-many"})
    assert pointers(problem(response, 400, "VALIDATION_ERROR")) == ["/productId"]
    response = await cart.add(item={**PHONE, "type": "addon"})
    assert pointers(problem(response, 400, "VALIDATION_ERROR")) == ["/type"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nonsense", '{"quantity": NaN}', '{"quantity": 1, "quantity": 2}', "[" * 16_000, "\ufeff{}"),
        *('{"quantity": ' + "9" * 5_000 + "}", "null", "[]", '"a"', '{"\\ud800": 1}', '{"quantity": "\\ud800"}'),
    ],
)
async def test_a_body_that_is_no_document_is_refused(cart: Served, text: str) -> None:
    response = await cart.client.put(
        "/v1/carts/ann/items/x", content=text.encode(), headers={"Content-Type": "application/json"}
    )
    assert problem(response, 400, "VALIDATION_ERROR")["errors"]


async def test_bytes_that_are_no_text_are_refused(cart: Served) -> None:
    headers = {"Content-Type": "application/json"}
    problem(
        await cart.client.post("/v1/carts/ann/items", content=b'{"a": "\xff"}', headers=headers),
        400,
        "VALIDATION_ERROR",
    )


async def test_bodies_are_bounded_with_and_without_a_key(cart: Served) -> None:
    large = {**PHONE, "name": "x" * 20_000}
    problem(await cart.add(item=large), 413, "PAYLOAD_TOO_LARGE")
    problem(await cart.add(item=large, Idempotency_Key="k"), 413, "PAYLOAD_TOO_LARGE")
    problem(await cart.check_out(body=large), 413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "application/jsonx", ""])
async def test_only_json_is_read(cart: Served, kind: str) -> None:
    headers = {"Content-Type": kind}
    problem(
        await cart.client.post("/v1/carts/ann/items", content=b"{}", headers=headers), 415, "UNSUPPORTED_MEDIA_TYPE"
    )


async def test_the_type_of_a_body_may_have_parameters(cart: Served) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    response = await cart.client.put("/v1/carts/ann/province", content=b'{"province": "ON"}', headers=headers)
    assert response.json()["province"] == "ON"


@pytest.mark.parametrize(
    "user", ["%00", "%2e%2e", "%C3%A4", "%F0%9F%93%B1", "a%20b", "x" * 300, "%0d%0aX-Evil:1", "a%3Fb"]
)
async def test_hostile_ids_of_users_are_refused_wherever_they_stand(cart: Served, user: str) -> None:
    requests = [
        cart.client.get(f"/v1/carts/{user}"),
        cart.add(user),
        cart.add(user, Idempotency_Key="k"),
        cart.client.get(f"/v1/carts/{user}/summary"),
        cart.client.put(f"/v1/carts/{user}/province", json={"province": "ON"}),
        cart.client.put(f"/v1/carts/{user}/items/x", json={"quantity": 1}),
        cart.client.delete(f"/v1/carts/{user}"),
        cart.check_out(user),
    ]
    for request in requests:
        response = await request
        assert pointers(problem(response, 400, "VALIDATION_ERROR")) == ["/userId"]
        assert "x-evil" not in response.headers
    for path, pointer in ((f"/v1/carts/ann/items/{user}", "/productId"), (f"/v1/orders/{user}", "/orderId")):
        call = cart.client.delete if "items" in path else cart.client.get
        assert pointers(problem(await call(path), 400, "VALIDATION_ERROR")) == [pointer]


async def test_a_slash_in_an_id_is_another_path(cart: Served) -> None:
    problem(await cart.client.get("/v1/carts/a%2Fb"), 404, "NOT_FOUND")
    problem(await cart.client.get("/v1/carts/%2E%2E%2Fann"), 404, "NOT_FOUND")


async def test_unknown_paths_and_methods_are_problems_too(cart: Served) -> None:
    for path in ("/", "/v1", "/v1/carts/", "/v1/carts/ann/", "/docs", "/demo/state", "/%00"):
        problem(await cart.client.get(path), 404, "NOT_FOUND")
    response = await cart.client.patch("/v1/carts/ann")
    problem(response, 405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "DELETE, GET, HEAD"
    assert (await cart.client.get("/v1/carts/ann/items/x")).headers["allow"] == "DELETE, PUT"


async def test_head_is_answered_like_get_without_the_body(cart: Served) -> None:
    tag = (await cart.add()).headers["etag"]
    for path in ("/v1/carts/ann", "/v1/carts/ann/summary", "/health", "/openapi.json"):
        response = await cart.client.head(path)
        assert (response.status_code, response.content) == (200, b""), path
        assert int(response.headers["content-length"]) > 0
    assert (await cart.client.head("/v1/carts/ann")).headers["etag"] == tag
    assert (await cart.client.head("/v1/orders/none")).status_code == 404
    assert (await cart.client.head("/v1/carts/ann/checkout")).status_code == 405


# --- adding with a key ----------------------------------------------------------------------------------------


async def test_an_item_that_is_sent_again_with_its_key_is_added_once(cart: Served) -> None:
    first = await cart.add(Idempotency_Key="k1", X_Correlation_Id="first")
    again = await cart.add(Idempotency_Key="k1", X_Correlation_Id="again")
    assert (again.status_code, again.json()) == (200, first.json())
    assert (again.headers["idempotent-replayed"], again.headers["x-correlation-id"]) == ("true", "again")
    assert (await cart.cart())["items"][0]["quantity"] == 1
    assert (await cart.add(Idempotency_Key="k2")).json()["items"][0]["quantity"] == 2
    assert (await cart.add("bob", Idempotency_Key="k1")).json()["userId"] == "bob"
    problem(await cart.add(item=PLAN, Idempotency_Key="k1"), 422, "IDEMPOTENCY_KEY_REUSED")


async def test_an_item_that_is_sent_ten_times_at_once_with_its_key_is_added_once(cart: Served) -> None:
    answers = await asyncio.gather(*(cart.add(Idempotency_Key="k") for _ in range(10)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    for answer in answers:
        if answer.status_code == 409:
            assert problem(answer, 409, "IDEMPOTENCY_KEY_IN_USE")["retryable"]
            assert answer.headers.get_list("retry-after") == ["1"]
    assert (await cart.cart())["items"][0]["quantity"] == 1


async def test_an_item_that_was_refused_may_be_sent_again_with_its_key(cart: Served) -> None:
    tag = (await cart.add()).headers["etag"]
    await cart.add()
    problem(await cart.add(Idempotency_Key="k", If_Match=tag), 412, "PRECONDITION_FAILED")
    assert (await cart.add(Idempotency_Key="k")).status_code == 200


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256])
async def test_a_key_that_is_none_is_named(cart: Served, key: str) -> None:
    for send in (cart.add, cart.check_out):
        body = problem(await send(Idempotency_Key=key), 400, "VALIDATION_ERROR")
        assert pointers(body) == ["Idempotency-Key"]


# --- correlation, health, contract ----------------------------------------------------------------------------


async def test_a_correlation_id_is_said_again_or_made(cart: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(CorrelationFilter())
    with caplog.at_level(logging.INFO, "telecom_cart"):
        response = await cart.client.get("/v1/carts/ann", headers={"X-Correlation-Id": "order-from-app-7"})
    assert response.headers["x-correlation-id"] == "order-from-app-7"
    [line] = [record for record in caplog.records if record.name == "telecom_cart.access"]
    assert line.__dict__["correlation_id"] == "order-from-app-7"
    assert line.getMessage().startswith("GET /v1/carts/ann 200 ")
    for bad in ("", "a b", "x" * 129, "ä"):
        made = (await cart.add(X_Correlation_Id=bad)).headers["x-correlation-id"]
        assert re.fullmatch("[0-9a-f]{16}", made)


async def test_health_says_how_the_platform_is_and_carts_work_all_the_same(cart: Served) -> None:
    async def health() -> dict[str, Any]:
        await asyncio.sleep(0.06)  # it is shared for so long
        got: dict[str, Any] = (await cart.client.get("/health")).json()
        return got

    provider: dict[str, Any] = {"name": "double", "status": "up", "detail": None, "facts": {}}
    assert await health() == {"status": "healthy", "provider": provider, "unknownCheckouts": 0}
    cart.fault("*", FaultKind.DOWN, times=None)
    found = await health()
    assert (found["status"], found["provider"]["status"]) == ("degraded", "down")
    assert "down" in found["provider"]["detail"]
    assert (await cart.add()).status_code == 200
    cart.provider.faults.clear()
    cart.fault("health", FaultKind.DELAY, seconds=30)
    assert "did not answer" in (await health())["provider"]["detail"]
    assert (await health())["status"] == "healthy"


async def test_however_many_ask_for_health_the_platform_is_asked_once(cart: Served) -> None:
    await asyncio.gather(*(cart.client.get("/health") for _ in range(20)))
    assert [entry.verb for entry in cart.platform.ledger] == ["health"]


async def test_the_contract_names_every_route_every_code_and_what_is_not_done(cart: Served) -> None:
    document = (await cart.client.get("/openapi.json")).json()
    assert {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item} == {
        "GET /v1/carts/{userId}",
        "DELETE /v1/carts/{userId}",
        "GET /v1/carts/{userId}/summary",
        "GET /v1/carts/{userId}/orders",
        "PUT /v1/carts/{userId}/province",
        "POST /v1/carts/{userId}/items",
        "PUT /v1/carts/{userId}/items/{productId}",
        "DELETE /v1/carts/{userId}/items/{productId}",
        "POST /v1/carts/{userId}/checkout",
        "GET /v1/orders/{orderId}",
        "GET /health",
    }
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for status, answer in operation["responses"].items():
                named = set(answer["headers"])
                assert "X-Correlation-Id" in named
                assert ("Retry-After" in named) == (status == "503" or "IN_PROGRESS" in str(answer) or status == "409")
                shows_cart = method != "delete" or "items" in path
                shows_cart = shows_cart and path.startswith("/v1/carts") and not path.endswith(("checkout", "orders"))
                assert ("ETag" in named) == (status == "200" and shows_cart)
                assert ("Idempotent-Replayed" in named) == (method == "post" and "items" in path and status == "200")
    assert "takes no payment and has no login" in document["info"]["description"]
    assert document["components"]["schemas"]["Cart"]["properties"].keys() == CART_FIELDS
    for named in re.findall(r"#/components/schemas/(\w+)", str(document)):
        assert named in document["components"]["schemas"]
    said = " ".join(str(answer) for item in document["paths"].values() for answer in item.values())
    for code in document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]:
        assert code in said or code in ("NOT_FOUND", "METHOD_NOT_ALLOWED")


async def test_health_is_not_told_by_a_store_that_can_be_read_and_not_written(
    cart: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await cart.client.get("/health")).status_code == 200

    async def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(type(cart.shop.repository.carts), "put", full)
    await asyncio.sleep(0.1)
    for _ in range(2):
        got = await cart.client.get("/health")
        assert (got.status_code, got.json()["code"]) == (503, "STORE_UNAVAILABLE")
