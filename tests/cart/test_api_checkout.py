"""Checkouts over HTTP: one order however often it is asked for, and a code for everything that is no order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from telecom_cart import errors
from telecom_cart.api import refusals
from telecom_cart.api.problems import STATUSES
from telecom_cart.api.views import instant
from telecom_cart.errors import CartError, CartNotFound
from telecom_cart.provider import Lookup
from telecom_cart.providers.faults import FaultKind
from tests.cart.serving import PLAN, Served, served
from tests.cart.test_api import pointers, problem

ORDER_FIELDS = {
    *("orderId", "orderNumber", "reference", "cartId", "userId", "provider", "status", "items", "totals"),
    *("platformSubtotal", "platformCurrency", "placedAt"),
}


@pytest.fixture
async def cart() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


def live_orders(cart: Served) -> list[str]:
    return [order.number for order in cart.platform.orders if order.is_live]


async def test_a_checkout_answers_the_order_which_can_be_read_ever_after(cart: Served) -> None:
    body = (await cart.add()).json()
    response = await cart.check_out()
    placed = response.json()
    assert placed.keys() == ORDER_FIELDS | {"replayed"}
    assert (placed["cartId"], placed["status"], placed["replayed"]) == (body["id"], "completed", False)
    assert (placed["items"], placed["totals"]) == (body["items"], body["totals"])
    assert live_orders(cart) == [placed["orderNumber"]]
    order = (await cart.client.get(f"/v1/orders/{placed['orderId']}")).json()
    assert {**order, "replayed": False} == placed
    assert (await cart.cart())["id"] != body["id"]


async def test_ten_checkouts_at_once_are_one_order(cart: Served) -> None:
    await cart.add()
    answers = await asyncio.gather(*(cart.check_out() for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["orderNumber"] for answer in answers} == set(live_orders(cart))
    assert sorted(answer.json()["replayed"] for answer in answers) == [False, *[True] * 9]
    assert len(live_orders(cart)) == 1


@pytest.mark.parametrize("how", ["key", "tag", "cart id"])
async def test_a_repeat_that_says_what_it_means_gets_the_old_order_after_a_new_cart_was_begun(
    cart: Served, how: str
) -> None:
    added = await cart.add()

    async def repeated() -> dict[str, Any]:
        match how:
            case "key":
                response = await cart.check_out(Idempotency_Key="k")
            case "tag":
                response = await cart.check_out(If_Match=added.headers["etag"])
            case _:
                response = await cart.check_out(body={"cartId": added.json()["id"]})
        assert response.status_code == 200, response.text
        got: dict[str, Any] = response.json()
        return got

    placed = await repeated()
    await cart.add(item=PLAN)
    assert await repeated() == {**placed, "replayed": True}
    assert live_orders(cart) == [placed["orderNumber"]]
    [item] = (await cart.cart())["items"]
    assert item["productId"] == PLAN["productId"]


async def test_a_bare_repeat_gets_the_old_order_or_is_asked_which_cart_is_meant(cart: Served) -> None:
    await cart.add()
    placed = (await cart.check_out()).json()
    assert (await cart.check_out()).json() == {**placed, "replayed": True}
    await cart.cart()
    assert (await cart.check_out()).json() == {**placed, "replayed": True}
    fresh = (await cart.add(item=PLAN)).json()
    problem(await cart.check_out(), 400, "AMBIGUOUS_CHECKOUT")
    assert len(live_orders(cart)) == 1
    second = (await cart.check_out(body={"cartId": fresh["id"]})).json()
    assert (second["replayed"], len(live_orders(cart))) == (False, 2)


async def test_a_key_of_another_cart_is_refused_for_this_one(cart: Served) -> None:
    await cart.add()
    await cart.check_out(Idempotency_Key="k")
    fresh = (await cart.add(item=PLAN)).json()
    response = await cart.check_out(Idempotency_Key="k", body={"cartId": fresh["id"]})
    assert pointers(problem(response, 400, "VALIDATION_ERROR")) == ["Idempotency-Key"]


@pytest.mark.parametrize("user", ["sha256-ann", "x" * 100])
async def test_users_of_any_name_may_use_keys_of_any_length(cart: Served, user: str) -> None:
    await cart.add(user)
    response = await cart.check_out(user, Idempotency_Key="k" * 255)
    assert response.status_code == 200, response.text


async def test_a_failure_is_never_given_again_as_the_result_of_a_key(cart: Served) -> None:
    await cart.add()
    await cart.synced()
    cart.fault("*", FaultKind.DOWN, times=None)
    body = problem(await cart.check_out(Idempotency_Key="k"), 503, "EXTERNAL_PROVIDER_ERROR")
    assert body["retryable"]
    shown = await cart.cart()
    assert (shown["checkoutStatus"], shown["checkoutError"]["code"]) == ("failed", "EXTERNAL_PROVIDER_ERROR")
    assert (shown["attempt"]["number"], shown["attempt"]["closing"]) == (1, "not_made")
    cart.provider.faults.clear()
    response = await cart.check_out(Idempotency_Key="k")
    assert (response.status_code, response.json()["replayed"]) == (200, False)
    assert "idempotent-replayed" not in response.headers


async def test_a_checkout_that_the_platform_refuses_says_why(cart: Served) -> None:
    await cart.add()
    await cart.synced()
    cart.platform.price_drift = 1
    body = problem(await cart.check_out(), 422, "CHECKOUT_FAILED")
    assert body["detail"].endswith("79900 in the cart, 79901 at the platform.")
    assert not body["retryable"]  # as long as the cart is the same, so is the answer
    assert live_orders(cart) == []
    assert (await cart.cart())["checkoutStatus"] == "failed"


async def test_an_empty_cart_cannot_be_ordered(cart: Served) -> None:
    await cart.cart()
    problem(await cart.check_out(), 400, "EMPTY_CART")


async def test_while_it_is_being_ordered_a_cart_is_not_changed() -> None:
    async with served(answer_seconds=0.2) as cart:
        await cart.add()
        await cart.synced()
        cart.fault("checkout", FaultKind.DELAY, seconds=1.5)
        response = await cart.check_out()
        assert problem(response, 422, "CHECKOUT_IN_PROGRESS")["retryable"]
        assert response.headers["retry-after"] == "2"
        for change in (cart.add(), cart.client.delete("/v1/carts/ann")):
            problem(await change, 422, "CHECKOUT_IN_PROGRESS")
        shown = await cart.cart()
        assert (shown["checkoutStatus"], shown["attempt"]["stage"]) == ("in_progress", "submitting")
        await asyncio.sleep(1.5)
        assert (await cart.check_out()).json()["replayed"]
        assert len(live_orders(cart)) == 1


async def test_nobody_settles_a_checkout_that_is_still_under_way() -> None:
    async with served(answer_seconds=0.2) as cart:
        await cart.add()
        await cart.synced()
        cart.fault("checkout", FaultKind.DELAY, seconds=1)
        problem(await cart.check_out(), 422, "CHECKOUT_IN_PROGRESS")
        with pytest.raises(CartNotFound):
            await cart.shop.settling.settle("ann", order_number=None)
        await asyncio.sleep(1)
        assert (await cart.check_out()).json()["orderNumber"] in live_orders(cart)


async def test_the_times_of_reads_are_written_again_after_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(touch_seconds=0.05) as cart:
        change = cart.shop.repository.change

        async def away(*_: object) -> None:
            raise StoreUnavailable

        await cart.cart()
        monkeypatch.setattr(cart.shop.repository, "change", away)
        await cart.cart()
        await asyncio.sleep(0.2)
        monkeypatch.setattr(cart.shop.repository, "change", change)
        read = await cart.cart()
        await asyncio.sleep(0.2)
        found = await cart.shop.repository.cart("ann")
        assert found is not None
        assert instant(found.accessed_at) == read["lastAccessedAt"]


async def test_an_order_of_which_nobody_knows_is_said_to_be_unknown(cart: Served) -> None:
    await cart.add()
    await cart.synced()
    cart.fault("checkout", FaultKind.APPLY_THEN_DROP)
    cart.fault("find_order", FaultKind.DOWN)
    response = await cart.check_out()
    assert problem(response, 503, "CHECKOUT_UNKNOWN")["retryable"]
    assert response.headers["retry-after"] == "5"
    shown = await cart.cart()
    assert (shown["checkoutStatus"], shown["checkoutError"]["code"]) == ("unknown", "CHECKOUT_UNKNOWN")
    assert len(live_orders(cart)) == 1


async def test_what_only_a_person_can_find_out_is_not_said_to_be_found_out_soon() -> None:
    async with served(lookup=Lookup(None)) as cart:
        await cart.add()
        await cart.synced()
        cart.platform.lookup_lag_seconds = 10**6
        cart.fault("checkout", FaultKind.APPLY_THEN_DROP)
        response = await cart.check_out()
        body = problem(response, 503, "CHECKOUT_UNKNOWN")
        assert "a person has to decide." in body["detail"]
        assert "being resolved" not in body["detail"]
        assert (body["retryable"], "retry-after" in response.headers) == (False, False)
        for change in (cart.add(), cart.client.delete("/v1/carts/ann")):
            body = problem(await change, 422, "CHECKOUT_IN_PROGRESS")
            assert "a person has to decide." in body["detail"]
            assert not body["retryable"]


async def test_a_cart_that_was_ordered_and_not_cleaned_up_cannot_be_changed(cart: Served) -> None:
    await cart.add()
    found = await cart.shop.repository.carts.get("ann")
    assert found is not None
    await cart.shop.repository.carts.put("ann", replace(found.value, order_id="order-x", completed_at=1))
    problem(await cart.add(), 422, "ALREADY_CHECKED_OUT")
    summary = (await cart.client.get("/v1/carts/ann/summary")).json()
    assert summary["checkoutStatus"] == "completed"


async def test_too_many_at_once_are_told_to_come_back() -> None:
    async with served(queue_limit=0) as cart:
        response = await cart.add()
        assert problem(response, 503, "OPERATION_TIMEOUT")["retryable"]
        assert response.headers["retry-after"] == "1"


async def test_without_its_store_it_says_so(cart: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(_: str) -> None:
        raise StoreUnavailable("the password of the database is hunter2")

    monkeypatch.setattr(cart.shop.repository.carts, "get", get)
    for response in (await cart.client.get("/v1/carts/ann"), await cart.client.get("/health"), await cart.add()):
        assert "hunter2" not in response.text
        assert problem(response, 503, "STORE_UNAVAILABLE")["retryable"]
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("key", ["", "k"])
async def test_what_nobody_foresaw_is_in_the_log_and_not_in_the_answer(
    cart: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    async def add_item(*_: object, **__: object) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(cart.shop.carts, "add_item", add_item)
    with caplog.at_level(logging.ERROR, "telecom_cart"):
        response = await (cart.add(Idempotency_Key=key) if key else cart.add())
    assert "hunter2" not in response.text
    assert not problem(response, 500, "INTERNAL_ERROR")["retryable"]
    assert "hunter2" in caplog.text


def test_every_code_has_a_status() -> None:
    codes = {
        kind.code
        for module in (errors, refusals)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, CartError)
    }
    assert codes == STATUSES.keys()


async def test_the_order_of_another_user_is_not_given_for_its_cart_id_or_tag(cart: Served) -> None:
    hers = (await cart.add("ann")).json()
    await cart.check_out("ann")
    await cart.add("bob")
    for wish in ({"body": {"cartId": hers["id"]}}, {"If_Match": f'"{hers["version"]}"'}):
        for user in ("bob", "cid"):
            response = await cart.check_out(user, **wish)
            assert problem(response, 404, "CART_NOT_FOUND")["detail"] == "This user has no such cart."
    assert len(live_orders(cart)) == 1


async def test_a_cart_id_and_a_tag_of_two_carts_are_refused(cart: Served) -> None:
    old = (await cart.add()).json()
    await cart.check_out()
    new = (await cart.add()).json()
    for cart_id, tag in ((old["id"], new["version"]), (new["id"], old["version"])):
        response = await cart.check_out(body={"cartId": cart_id}, If_Match=f'"{tag}"')
        assert pointers(problem(response, 400, "VALIDATION_ERROR")) == ["/cartId"]
    assert len(live_orders(cart)) == 1


async def test_a_new_key_on_an_empty_cart_stands_for_no_old_order(cart: Served) -> None:
    await cart.add()
    first = (await cart.check_out(Idempotency_Key="k1")).json()
    problem(await cart.check_out(Idempotency_Key="k2"), 404, "CART_NOT_FOUND")
    await cart.cart()
    problem(await cart.check_out(Idempotency_Key="k2"), 400, "EMPTY_CART")
    await cart.add(item=PLAN)
    second = (await cart.check_out(Idempotency_Key="k2")).json()
    assert (second["replayed"], [item["productId"] for item in second["items"]]) == (False, ["plan-20"])
    for key, order in (("k1", first), ("k2", second)):
        assert (await cart.check_out(Idempotency_Key=key)).json()["orderId"] == order["orderId"]


async def test_a_checkout_that_failed_may_be_sent_again_as_it_is_when_it_says_so(cart: Served) -> None:
    tag = (await cart.add()).headers["etag"]
    await cart.synced()
    cart.fault("checkout", FaultKind.FAILED_ORDER_400)
    assert problem(await cart.check_out(If_Match=tag), 422, "CHECKOUT_FAILED")["retryable"]
    response = await cart.check_out(If_Match=tag)
    assert (response.status_code, response.json()["replayed"]) == (200, False)


async def test_a_platform_that_wants_fewer_requests_at_the_order_is_asked_before_that_is_told(cart: Served) -> None:
    await cart.add()
    await cart.synced()
    cart.fault("checkout", FaultKind.THROTTLE)
    response = await cart.check_out()
    refused = problem(response, 422, "CHECKOUT_FAILED")
    assert "wants fewer requests" in refused["detail"]
    assert refused["retryable"]
    assert (await cart.cart())["checkoutError"]["code"] == "CHECKOUT_FAILED"
    assert (await cart.check_out()).status_code == 200


async def test_health_counts_the_checkouts_of_which_nobody_knows_what_became(cart: Served) -> None:
    await cart.add()
    await cart.synced()
    cart.fault("checkout", FaultKind.APPLY_THEN_DROP)
    cart.fault("find_order", FaultKind.DOWN, times=None)
    problem(await cart.check_out(), 503, "CHECKOUT_UNKNOWN")
    assert (await cart.client.get("/health")).json()["unknownCheckouts"] == 1
    cart.provider.faults.clear()
    assert (await cart.check_out()).status_code == 200
    await asyncio.sleep(0.06)  # it is shared for so long
    assert (await cart.client.get("/health")).json()["unknownCheckouts"] == 0


async def test_the_orders_of_a_user_are_listed_the_newest_first_page_by_page(cart: Served) -> None:
    path = "/v1/carts/ann/orders"
    assert (await cart.client.get(path)).json() == {"orders": [], "next": None}
    placed: list[dict[str, object]] = []
    for n in range(5):
        await cart.add()
        placed.insert(0, (await cart.check_out(Idempotency_Key=f"k{n}")).json())
    for neighbour in ("ann.b", "anna", "an", "b"):
        await cart.add(neighbour)
        await cart.check_out(neighbour)
    listed: list[dict[str, object]] = []
    query = "limit=2"
    for size in (2, 2, 1):
        got = (await cart.client.get(f"{path}?{query}")).json()
        assert len(got["orders"]) == size
        listed += got["orders"]
        query = f"limit=2&after={got['next']}"
    assert got["next"] is None
    assert [order | {"replayed": False} for order in listed] == placed
    assert (await cart.client.get(path)).json()["orders"] == listed
    assert (await cart.client.get("/v1/carts/anna/orders?limit=1")).json()["next"] is None


async def test_a_page_of_orders_that_cannot_be_is_refused_with_every_reason(cart: Served) -> None:
    await cart.add("bob")
    of_bob = (await cart.check_out("bob")).json()["orderId"]
    for query, wrong in (
        ("limit=0", ["limit"]),
        ("limit=51", ["limit"]),
        ("limit=1.0", ["limit"]),
        ("limit=1&limit=2", ["limit"]),
        (f"after={of_bob}", ["after"]),
        ("limit=x&after=a/b", ["limit", "after"]),
    ):
        response = await cart.client.get(f"/v1/carts/ann/orders?{query}")
        assert pointers(problem(response, 400, "VALIDATION_ERROR")) == wrong
