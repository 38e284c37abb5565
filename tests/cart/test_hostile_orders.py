"""A platform that orders, and says something odd about it: nobody is ever told that nothing was ordered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from telecom_cart.provider import Closed, Found, ProviderError, Uncertain, Unsure
from tests.cart.lying_platform import DEEP, FIRST, UNKEEPABLE, Lie, Lying, instead, lying, raw, within, without
from tests.cart.shops import EVENTUAL, STRONG

SUBMIT = ("data", "cartSubmitForCompletion")
POLL = ("data", "cartCompletionAttempt")
PROBLEM = {"type": "https://x/invalid-basket", "detail": "no"}

SALESFORCE: dict[str, Lie] = {
    "a status that is null": instead(status=None),
    "a status that is a list": instead(status=["created"]),
    "a status that is a number": instead(status=7),
    "an empty status": instead(status=""),
    "no status": without("status"),
    "no number": without("orderNo"),
    **{f"a number that is {str(each)[:12]!a} ({n})": instead(orderNo=each) for n, each in enumerate(UNKEEPABLE)},
    "the reference of another": instead(c_orderRef="cart-6-1"),
    "an endless number": lambda truth: json.dumps({**truth, "x": 0}).replace(": 0", ": 1" + "0" * 5000).encode(),
    "an endless price": lambda truth: json.dumps({**truth, "x": 0}).replace(": 0", ": 1e5000").encode(),
    "not a number": lambda truth: json.dumps({**truth, "x": float("nan")}).encode(),
    "a deep document": raw(DEEP),
    "a document that breaks off": lambda truth: json.dumps(truth).encode()[:-1],
    "a list": lambda truth: json.dumps([truth]).encode(),
    "a refusal with an order in it": lambda truth: raw(json.dumps({**truth, **PROBLEM}).encode(), 400)(truth),
    "a refusal of a type that is no text": raw(b'{"type": ["x"]}', 400),
    "a refusal without a reason": raw(b"{}", 409),
    "a refused token without a reason": raw(b"", 401),
    "too many requests, with an order": lambda truth: raw(json.dumps(truth).encode(), 429)(truth),
    "created": lambda truth: raw(json.dumps({**truth, "status": None}).encode(), 201)(truth),
    "accepted": raw(b"{}", 202),
    "nothing": raw(b"", 204),
    "a redirect": raw(b"", 302, location="/elsewhere"),
}
SHOPIFY: dict[str, Lie] = {
    "no attempt": without(*SUBMIT, "result", "attemptId"),
    **{
        f"an attempt that is {str(each)[:12]!a} ({n})": within(*SUBMIT, "result", "attemptId", value=each)
        for n, each in enumerate(UNKEEPABLE)
    },
    "no result": within(*SUBMIT, "result", value=None),
    "a result that is a list": within(*SUBMIT, "result", value=[]),
    "a type that is a list": within(*SUBMIT, "result", "__typename", value=["SubmitSuccess"]),
    "another type": within(*SUBMIT, "result", "__typename", value="SubmitLater"),
    "no payload": within(*SUBMIT, value=None),
    "no data": without("data"),
    "user errors that are no list": within(*SUBMIT, value={"result": None, "userErrors": "no"}),
    "user errors that are no objects": within(*SUBMIT, value={"result": None, "userErrors": ["no"]}),
    "throttled, and accepted": instead(errors=[{"message": "x", "extensions": {"code": "THROTTLED"}}]),
    "throttled in words": lambda _: {"errors": [{"message": "x", "extensions": ["THROTTLED"]}]},
    "extensions that are a text": lambda _: {"errors": [{"message": "x", "extensions": "THROTTLED"}]},
    "a deep document": raw(DEEP),
    "an endless number": raw(b'{"data": 1' + b"0" * 5000 + b"}"),
    "a refused token without a reason": raw(b"", 401),
    "a refused token, and an attempt": lambda truth: raw(json.dumps(truth).encode(), 403)(truth),
    "too many requests, and an attempt": lambda truth: raw(json.dumps(truth).encode(), 429)(truth),
}
SHOPIFY_RESULT: dict[str, Lie] = {
    "no attempt": within(*POLL, value=None),
    "no data": lambda _: {"data": {}},
    "a type that is a list": within(*POLL, "__typename", value=["CartCompletionSuccess"]),
    "another type": within(*POLL, "__typename", value="CartCompletionLater"),
    "an action that is wanted": within(*POLL, "__typename", value="CartCompletionActionRequired"),
    "a success without an order": within(*POLL, value={"__typename": "CartCompletionSuccess"}),
    **{
        f"an order that is {str(each)[:12]!a} ({n})": within(
            *POLL, value={"__typename": "CartCompletionSuccess", "orderId": each}
        )
        for n, each in enumerate(UNKEEPABLE)
    },
    "a wait that is not a number": raw(
        b'{"data": {"cartCompletionAttempt": {"__typename": "CartCompletionProcessing", "pollDelay": NaN}}}'
    ),
    "an endless wait": raw(
        b'{"data": {"cartCompletionAttempt": {"__typename": "CartCompletionProcessing", "pollDelay": 1e999}}}'
    ),
    "a failure without errors": within(*POLL, value={"__typename": "CartCompletionFailed"}),
    "a deep document": raw(DEEP),
    "denied": lambda _: {"errors": [{"message": "no", "extensions": {"code": "ACCESS_DENIED"}}]},
    "nothing": raw(b"", 204),
    "a refusal": raw(b"{}", 400),
}


@pytest.fixture(scope="module", params=["salesforce", "shopify"])
async def platform(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Lying]:
    async with lying(request.param, STRONG) as platform:
        yield platform


@pytest.fixture(scope="module", params=["salesforce", "shopify"])
async def searched(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Lying]:
    async with lying(request.param, EVENTUAL) as platform:
        yield platform


async def test_whatever_is_said_about_an_order_that_was_made_is_never_that_there_is_none(platform: Lying) -> None:
    tables = {
        "salesforce": [("checkout", SALESFORCE)],
        "shopify": [("checkout", SHOPIFY), ("checkout_result", SHOPIFY_RESULT)],
    }
    wrong: dict[str, str] = {}
    for verb, lies in tables[platform.shop.provider.name]:
        for name, lie in lies.items():
            context = await platform.filled()
            platform.lies[verb] = lie
            try:
                placed = await platform.shop.provider.checkout(context, platform.reference)
                wrong[name] = repr(placed)
            except Uncertain:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
                wrong[name] = repr(error)
            finally:
                platform.lies.clear()
            assert platform.live_orders == 1, name
    assert wrong == {}


async def test_an_order_of_which_nothing_is_told_but_that_it_was_made_is_an_order(platform: Lying) -> None:
    for lie in (
        without("data"),
        raw(DEEP),
        within("data", "order", "id", value="gid://shopify/Order/9"),
        raw(b"", 500),
    ):
        context = await platform.filled()
        platform.lies["get_order"] = lie
        assert (await platform.shop.provider.checkout(context, platform.reference)).is_live
        platform.lies.clear()


async def test_an_order_of_somebody_else_is_not_taken_for_ours(platform: Lying) -> None:
    context = await platform.filled()
    if platform.shop.provider.name == "salesforce":
        await platform.shop.provider.checkout(context, platform.reference)
        for lie in (instead(c_orderRef="cart-6-1"), instead(orderNo="cart-6-1"), without("c_orderRef")):
            platform.lies["find_order"] = lie
            assert isinstance(await platform.shop.provider.find_order(context, platform.reference, since=0), Unsure)
    else:
        others = [{"key": "c_orderRef", "value": "cart-6-1"}]
        platform.lies["get_order"] = within("data", "order", "customAttributes", value=others)
        with pytest.raises(Uncertain):
            await platform.shop.provider.checkout(context, platform.reference)
    platform.lies.clear()
    assert isinstance(await platform.shop.provider.find_order(context, platform.reference, since=0), Found)


LOOKED_UP: dict[str, dict[str, Lie]] = {
    "salesforce": {
        "no list": without("data"),
        "null": instead(data=None),
        "an object": instead(data={}),
        "rows that are null": instead(data=[None]),
        "rows without a number": instead(data=[{"c_orderRef": FIRST, "status": "created"}]),
        "rows without a status": instead(data=[{"c_orderRef": FIRST, "orderNo": "1"}]),
        "a reference that is a list": instead(data=[{"c_orderRef": [FIRST], "orderNo": "1", "status": "new"}]),
        "fewer rows than there are": instead(data=[]),
        "nothing": raw(b"", 204),
        "an empty text": raw(b"", 200),
        "a deep document": raw(DEEP),
        "not found": raw(b'{"type": "x/order-not-found"}', 404),
    },
    "shopify": {
        "no list": without("data", "orders"),
        "null": within("data", "orders", value=None),
        "nodes that are null": within("data", "orders", "nodes", value=None),
        "a node that is null": within("data", "orders", "nodes", 0, value=None),
        "no attributes": without("data", "orders", "nodes", 0, "customAttributes"),
        "attributes that are null": within("data", "orders", "nodes", 0, "customAttributes", value=None),
        "attributes that are texts": within("data", "orders", "nodes", 0, "customAttributes", value=["x"]),
        "no id": without("data", "orders", "nodes", 0, "id"),
        "an id that is a list": within("data", "orders", "nodes", 0, "id", value=["1"]),
        "cancelled at a number": within("data", "orders", "nodes", 0, "cancelledAt", value=7),
        "cancelled or not, not said": without("data", "orders", "nodes", 0, "cancelledAt"),
        "no pages": within("data", "orders", value={"nodes": []}),
        "pages that are null": within("data", "orders", value={"nodes": [], "pageInfo": {"hasNextPage": None}}),
        "errors besides": instead(errors=[{"message": "x"}]),
        "errors of another form": instead(errors="x"),
        "a deep document": raw(DEEP),
        "nothing": raw(b"", 204),
    },
}


async def test_a_look_up_that_cannot_be_read_is_unsure_and_never_absent(searched: Lying) -> None:
    context = await searched.filled()
    await searched.shop.provider.checkout(context, FIRST)
    wrong: dict[str, str] = {}
    for name, lie in LOOKED_UP[searched.shop.provider.name].items():
        searched.lies["find_order"] = lie
        found = await searched.shop.provider.find_order(context, FIRST, since=0)
        if not isinstance(found, Unsure):
            wrong[name] = repr(found)
    searched.lies.clear()
    assert wrong == {}
    assert isinstance(await searched.shop.provider.find_order(context, FIRST, since=0), Found)


FENCES: dict[str, list[tuple[str, Lie]]] = {
    "salesforce": [
        ("close_cart", raw(b"", 200)),
        ("close_cart", raw(b"{}", 200)),
        ("close_cart", raw(b"", 202)),
        ("close_cart", raw(b"", 302)),
        ("close_cart", raw(b"", 404)),
        ("close_cart", raw(b'{"type": ["basket-not-found"]}', 404)),
        ("close_cart", raw(DEEP, 404)),
    ],
    "shopify": [
        ("get_cart", lambda _: {"data": {}}),
        ("get_cart", without("data", "cart", "lines")),
        ("get_cart", within("data", "cart", "lines", "nodes", value=None)),
        ("get_cart", within("data", "cart", "lines", "nodes", value="")),
        ("get_cart", within("data", "cart", "lines", "pageInfo", "hasNextPage", value=None)),
        ("get_cart", within("data", "cart", "attributes", value=7)),
        ("get_cart", raw(DEEP)),
        ("close_cart", lambda _: {"data": {}}),
        ("close_cart", within("data", "cartLinesRemove", value={"userErrors": "x"})),
        ("close_cart", raw(b"", 204)),
    ],
}


async def test_a_fence_that_cannot_be_read_is_not_said_to_hold(platform: Lying) -> None:
    wrong: list[str] = []
    for n, (verb, lie) in enumerate(FENCES[platform.shop.provider.name]):
        context = await platform.filled()
        platform.lies[verb] = lie
        try:
            wrong.append(f"{n}: {await platform.shop.provider.close_cart(context)}")
        except ProviderError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
            wrong.append(f"{n}: {error!r}")
        platform.lies.clear()
        assert await platform.shop.provider.close_cart(context) in Closed
    assert wrong == []


PRESENCES: dict[str, list[tuple[str, Lie]]] = {
    "salesforce": [("get_cart", raw(b'{"type": ["basket-not-found"]}', 404)), ("get_cart", raw(b"", 404))],
    "shopify": [
        ("validate_context", lambda _: {"data": {}}),
        ("validate_context", without("data", "cart", "attributes")),
        ("validate_context", lambda _: {"data": {"cart": {"attributes": [{"key": "c_closed", "value": "yes"}]}}}),
        ("validate_context", lambda _: {"data": {"cart": []}}),
        ("validate_context", raw(DEEP)),
    ],
}


async def test_a_basket_that_cannot_be_read_is_not_said_to_be_gone(platform: Lying) -> None:
    context = await platform.filled()
    for verb, lie in PRESENCES[platform.shop.provider.name]:
        platform.lies[verb] = lie
        with pytest.raises(ProviderError):
            await platform.shop.provider.validate_context(context)
        platform.lies.clear()
