"""What every `Provider` must do, sentence by sentence of the contract. Bind it with one fixture:

    class TestMyProvider(ProviderConformance):
        @pytest.fixture
        async def shop(self) -> AsyncIterator[ObedientShop]: ...   # an empty one, with your provider

The names of the tests are the table of contents. They need pytest with anyio, and a platform whose faults and clock
can be commanded; `telecom_cart.simulators` has two. A platform that accepts an order and makes it later is bound to
`order_conformance.LaterOrderConformance`, too.
"""

from __future__ import annotations

from contextlib import suppress

from telecom_cart.guarded_provider import check
from telecom_cart.provider import Absent, Found, ProviderError, Unsure, is_plain
from telecom_cart.providers.basket_conformance import BasketConformance
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.obedient_shop import PHONE, REFERENCE, SINCE, ObedientShop, filled
from telecom_cart.providers.order_conformance import OrderConformance

MOST_WORDS = 1000


class ProviderConformance(BasketConformance, OrderConformance):
    """The whole contract."""

    async def test_it_says_what_it_is_where_it_is_and_how_long_it_may_take(self, shop: ObedientShop) -> None:
        check(shop.provider)
        assert [secret for secret in shop.secrets if secret in shop.provider.place] == []

    async def test_health_is_asked_of_the_platform(self, shop: ObedientShop) -> None:
        assert (await shop.provider.health()).is_up
        for kind in (FaultKind.DOWN, FaultKind.FAIL_BEFORE):
            shop.fault("*", Fault(kind, times=None))
            down = await shop.provider.health()
            assert not down.is_up
            assert down.detail
            shop.clear_faults()
            assert (await shop.provider.health()).is_up

    async def test_no_error_tells_a_secret(self, shop: ObedientShop) -> None:
        provider = shop.provider
        errors: list[str] = []
        for kind in FaultKind:
            for verb in ("*", "checkout", "find_order"):
                context = await filled(shop, reference=REFERENCE)
                shop.fault(verb, Fault(kind, times=None, seconds=0))
                told = [context.basket_id.partition("?")[2], *shop.secrets]
                for act in (
                    provider.get_cart(context),
                    provider.checkout(context, REFERENCE),
                    provider.find_order(context, REFERENCE, since=SINCE),
                    provider.close_cart(context),
                    provider.checkout(context, REFERENCE),
                ):
                    try:
                        errors.append(repr(await act))
                    except ProviderError as error:
                        errors.append(f"{error!r} {error} {error.told} {error.__cause__!r}")
                shop.clear_faults()
                said = "\n".join([*errors, repr(context), repr(provider)])
                assert [secret for secret in told if secret and secret in said] == []
        assert errors

    async def test_what_is_kept_of_a_platform_is_short_and_printable(self, shop: ObedientShop) -> None:
        context = await filled(shop, reference=REFERENCE)
        assert is_plain(context.basket_id)
        assert context.session == "" or is_plain(context.session)
        assert is_plain((await shop.provider.checkout(context, REFERENCE)).number)
        found = await shop.provider.find_order(context, REFERENCE, since=SINCE)
        assert isinstance(found, Found)
        assert all(is_plain(order.number) for order in found.orders)

    async def test_an_error_is_told_in_short_printable_words(self, shop: ObedientShop) -> None:
        for kind in FaultKind:
            context = await filled(shop, reference=REFERENCE)
            shop.fault("checkout", Fault(kind, times=None, seconds=0))
            try:
                await shop.provider.checkout(context, REFERENCE)
            except ProviderError as error:
                for words in (*error.reasons, error.told):
                    assert words == "" or (words.isprintable() and len(words) <= MOST_WORDS)
            shop.clear_faults()

    async def test_whatever_goes_wrong_is_an_error_of_the_contract(self, shop: ObedientShop) -> None:
        provider = shop.provider
        for kind in FaultKind:
            context = await filled(shop, reference=REFERENCE)
            shop.fault("*", Fault(kind, times=None, seconds=0))
            for act in (
                provider.open_session(),
                provider.create_cart(context.session, [PHONE], currency="CAD"),
                provider.add_item(context, PHONE),
                provider.remove_item(context, PHONE.product_id),
                provider.get_cart(context),
                provider.validate_context(context),
                provider.set_reference(context, REFERENCE),
                provider.checkout(context, REFERENCE),
                provider.close_cart(context),
            ):
                with suppress(ProviderError):
                    await act
            assert isinstance(await provider.find_order(context, REFERENCE, since=SINCE), Found | Absent | Unsure)
            assert isinstance((await provider.health()).is_up, bool)
            shop.clear_faults()
