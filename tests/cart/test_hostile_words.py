"""A platform that says again what it was told, and worse: users hear our words, operators one masked line."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import pytest

from telecom_cart.guarded_provider import GuardedProvider
from telecom_cart.loglines import formatter
from telecom_cart.provider import Health, ProviderError, Unsure
from telecom_cart.providers.answers import SHOWN_CHARACTERS, shown
from tests.cart.lying_platform import DEEP, UNKEEPABLE, Lie, Lying, instead, lying, raw, within
from tests.cart.shops import STRONG

SECRET = "c2VjcmV0OmhpZGRlbg=="
ECHOES = (
    f"Authorization: Basic {SECRET}",
    f"authorization: bearer {SECRET}",
    f'{{"access_token": "{SECRET}", "x": 1}}',
    f"client_secret={SECRET}&x=1",
    f"refresh_token: '{SECRET}'",
    f"X-Shopify-Access-Token: {SECRET}",
    f"password={SECRET}",
    f"set-cookie: sid={SECRET}",
    f"?key={SECRET}",
    f"https://x/?id=gid%3A%2F%2Fshopify%2FCart%2F1%3Fkey%3D{SECRET}",
    f"Access token shpat_{SECRET} is invalid",
    f"the token {SECRET} is not known",
    f'{{\\"key\\":\\"{SECRET}\\"}}',
    f"shpca_{SECRET}",
)
FORGED = "no\n2026-01-01 00:00:00 INFO telecom_cart [-] all is well\x1b[31m\u202e\x00"


@pytest.mark.parametrize("echo", ECHOES)
def test_what_is_shown_to_operators_has_no_secret_in_it(echo: str) -> None:
    assert SECRET not in shown(echo)
    assert SECRET not in shown(f"said: {echo}, and more")


def test_what_is_shown_to_operators_is_one_short_printable_line() -> None:
    assert shown(FORGED).isprintable()
    assert len(shown("\x00" * 10_000)) == SHOWN_CHARACTERS
    for value in (None, 7, ["x"], {"a": 1}):
        assert shown(value) == ""


@pytest.fixture(params=["salesforce", "shopify"])
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[Lying]:
    async with lying(request.param, STRONG) as platform:
        yield platform


def refusing(name: str, said: str) -> Lie:
    if name == "shopify":
        return lambda _: {"errors": [{"message": said, "extensions": {"code": said}}]}
    code = said if said.isprintable() and len(said) < 200 else "refused"
    problem = {"type": f"https://x/{code}", "title": said, "detail": said, "error": said, "message": said}
    return lambda _: raw(json.dumps(problem).encode(), 400)({})


VERBS = ("get_cart", "add_item", "set_reference", "checkout", "find_order", "close_cart", "validate_context")


@pytest.mark.parametrize("said", [*ECHOES[:4], FORGED, "x" * 100_000])
async def test_users_are_never_told_what_a_platform_says_in_words(
    platform: Lying, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    provider = GuardedProvider(platform.shop.provider)
    context = await platform.filled()
    told: list[str] = []
    for verb in ("open_session", "health", "prepare_checkout", "pay_checkout", "checkout_result", *VERBS):
        platform.lies[verb] = refusing(provider.name, said)
    with caplog.at_level(logging.INFO, "telecom_cart"):
        for act in (
            provider.get_cart(context),
            provider.checkout(context, platform.reference),
            provider.find_order(context, platform.reference, since=0),
            provider.close_cart(context),
            provider.set_reference(context, "x"),
            provider.health(),
        ):
            try:
                outcome = await act
                told += [outcome.reason] if isinstance(outcome, Unsure) else []
                told += [outcome.detail] if isinstance(outcome, Health) else []
            except ProviderError as error:
                told += [str(error), repr(error), *error.reasons]
    platform.shop.forget_tokens()
    for words in told:
        assert len(words) < 200
        assert words.isprintable()
        assert SECRET not in words
        assert "all is well" not in words
    for record in caplog.records:
        record.correlation_id = "-"
        line = formatter().format(record)
        assert SECRET not in line
        assert line.isprintable()
        assert len(line) < 1_000
    assert caplog.records


FORMS: dict[str, list[tuple[str, Lie]]] = {
    "salesforce": [
        *(("open_session", instead(access_token=each)) for each in UNKEEPABLE[:6]),
        ("open_session", instead(access_token="a\r\nX: y")),
        ("open_session", instead(access_token="x" * 10_000)),
        ("open_session", instead(usid="\ud800")),
        ("open_session", instead(usid="x" * 100_001)),
        ("open_session", instead(expires_in="soon")),
        ("open_session", instead(expires_in=-1)),
        ("open_session", raw(DEEP)),
        *(("create_cart", instead(basketId=each)) for each in UNKEEPABLE),
        ("get_cart", instead(currency=["CAD"])),
        ("get_cart", instead(basketId="another")),
        ("get_cart", within("productItems", 0, "quantity", value=1.9)),
        ("get_cart", within("productItems", 0, "quantity", value=-1)),
        ("get_cart", within("productItems", 0, "quantity", value="1")),
        ("get_cart", within("productItems", 0, "quantity", value=True)),
        ("get_cart", within("productItems", 0, "productId", value=["x"])),
        ("get_cart", within("productItems", 0, "basePrice", value="1e5000")),
        ("get_cart", raw(b'{"currency": "CAD", "productSubTotal": 1e5000}')),
        ("get_cart", raw(b'{"currency": "CAD", "productSubTotal": 1' + b"0" * 5000 + b"}")),
        ("get_cart", raw(DEEP)),
        ("get_cart", raw(b"\xff\xfe")),
        ("get_cart", instead(c_orderRef="\ud800")),
    ],
    "shopify": [
        *(("create_cart", within("data", "cartCreate", "cart", "id", value=each)) for each in UNKEEPABLE),
        ("create_cart", within("data", "cartCreate", "cart", value=None)),
        ("create_cart", within("data", "cartCreate", "userErrors", value=None)),
        ("get_cart", within("data", "cart", "id", value="another")),
        ("get_cart", within("data", "cart", "lines", "nodes", 0, "quantity", value=1.9)),
        ("get_cart", within("data", "cart", "lines", "nodes", 0, "quantity", value=True)),
        ("get_cart", within("data", "cart", "lines", "nodes", 0, "id", value="x" * 300)),
        ("get_cart", within("data", "cart", "cost", value=[])),
        ("get_cart", within("data", "cart", "cost", "subtotalAmount", "amount", value="1e5000")),
        ("get_cart", within("data", "cart", "attributes", value=[{"key": 7}])),
        ("get_cart", lambda _: {"errors": [{"message": "x", "extensions": "THROTTLED"}]}),
        ("get_cart", raw(DEEP)),
    ],
}


async def test_an_answer_of_another_form_is_an_error_of_the_contract_and_nothing_of_it_is_kept(
    platform: Lying,
) -> None:
    provider = platform.shop.provider
    wrong: list[str] = []
    for n, (verb, lie) in enumerate(FORMS[provider.name]):
        context = await platform.filled()
        platform.lies[verb] = lie
        try:
            if verb == "get_cart":
                said: object = await provider.get_cart(context)
                await provider.remove_item(context, "phone-1")
            else:
                session = await provider.open_session()
                said = await provider.create_cart(session, [], currency="CAD")
            wrong.append(f"{n} {verb}: {said!r}"[:200])
        except ProviderError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
            wrong.append(f"{n} {verb}: {error!r}"[:200])
        assert isinstance((await provider.health()).is_up, bool)
        platform.lies.clear()
    assert wrong == []
