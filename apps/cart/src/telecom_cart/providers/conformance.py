"""What every `Provider` must do, sentence by sentence of the contract. Bind it with one fixture:

    class TestMyProvider(ProviderConformance):
        @pytest.fixture
        async def shop(self) -> AsyncIterator[ObedientShop]: ...   # an empty one, with your provider

The names of the tests are the table of contents. They need pytest with anyio, and a platform whose faults and clock
can be commanded; `telecom_cart.simulators` has two.
"""

from __future__ import annotations

from telecom_cart.guarding import check
from telecom_cart.provider import ProviderError
from telecom_cart.providers.basket_conformance import BasketConformance
from telecom_cart.providers.faults import Fault, FaultKind
from telecom_cart.providers.obedient_shop import REFERENCE, SINCE, ObedientShop, filled
from telecom_cart.providers.order_conformance import OrderConformance


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
                        errors.append(f"{error!r} {error} {error.__cause__!r}")
                shop.clear_faults()
                said = "\n".join([*errors, repr(context), repr(provider)])
                assert [secret for secret in told if secret and secret in said] == []
        assert errors
