"""Defects that a cart must not have, planted one at a time: each is a trap that some shop fell into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from mainspring.records import Records
from telecom_cart import checkout, recovery
from telecom_cart.checkout import Checkouts, Placed, Wish, attempt_of
from telecom_cart.contexts import lines_of, made_equal
from telecom_cart.errors import CheckoutFailed, ProviderDown
from telecom_cart.model import Attempt, Cart, Context, Stage
from telecom_cart.provider import (
    Absent,
    Basket,
    Found,
    NotSent,
    Provider,
    ProviderError,
    Refused,
    Uncertain,
    Unreachable,
)
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.queues import Queues
from telecom_cart.recovery import Presence, Recovery


class _Instead:
    """Something with one method replaced, for whoever has it."""

    def __init__(self, inner: object, **methods: Any) -> None:
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _with(checkouts: Checkouts, **parts: Any) -> Checkouts:
    other = copy(checkouts)
    other.__dict__.update(parts)
    return other


def _method(owner: type, name: str, broken: Callable[[Any], Any]) -> AbstractContextManager[object]:
    return patch.object(owner, name, broken(vars(owner)[name]))


def order_before_the_lock() -> AbstractContextManager[object]:
    """The cart is read before it is one's turn, and sealed whatever it has become."""

    def broken(seal: Any) -> Any:
        async def unguarded(self: Checkouts, cart: Cart) -> Cart:
            change, is_sealed = self._repository.change, False

            async def blindly(user_id: str, decide: Callable[[Cart | None], Cart | None]) -> Cart | None:
                nonlocal is_sealed
                if is_sealed:
                    return await change(user_id, decide)
                is_sealed = True
                return await change(user_id, lambda _: decide(cart))

            sealed: Cart = await seal(_with(self, _repository=_Instead(self._repository, change=blindly)), cart)
            return sealed

        return unguarded

    def unqueued(_: Any) -> Any:
        @asynccontextmanager
        async def at_once(self: Queues, user_id: str) -> AsyncIterator[None]:
            yield

        return at_once

    @contextmanager
    def planted() -> Iterator[None]:
        with _method(Checkouts, "_seal", broken), _method(Queues, "turn", unqueued):
            yield

    return planted()


async def _order_anew(provider: Provider, cart: Cart, attempt: Attempt) -> None:
    async def keep(_: Context) -> None: ...

    made, _ = await made_equal(provider, None, lines_of(attempt.items), currency=cart.currency, keep=keep)
    await provider.set_reference(made, attempt.reference)
    await provider.checkout(made, attempt.reference)


def retry_on_a_new_basket() -> AbstractContextManager[object]:
    """An order that got no answer is tried again with another basket."""

    def broken(submit: Any) -> Any:
        async def again(self: Checkouts, cart: Cart, basket: Basket) -> None:
            send = self._provider.checkout

            async def twice(context: Context, reference: str, **named: Any) -> Any:
                try:
                    return await send(context, reference, **named)
                except Uncertain:
                    await _order_anew(self._provider, cart, attempt_of(cart))
                    raise

            await submit(_with(self, _provider=_Instead(self._provider, checkout=twice)), cart, basket)

        return again

    return _method(Checkouts, "_submit", broken)


def failure_cached() -> AbstractContextManager[object]:
    """A failure is the result of a key, ever after."""

    def broken(run: Any) -> Any:
        failures: dict[tuple[str, str], Exception] = {}

        async def cached(self: Checkouts, user_id: str, wish: Wish) -> Placed:
            name = (user_id, wish.key or "")
            if wish.key and name in failures:
                raise failures[name]
            try:
                placed: Placed = await run(self, user_id, wish)
            except (CheckoutFailed, ProviderDown) as error:
                failures[name] = error
                raise
            return placed

        return cached

    return _method(Checkouts, "run", broken)


def no_fence() -> AbstractContextManager[object]:
    """An attempt is over although its basket can still be ordered."""

    def broken(_: Any) -> Any:
        async def unfenced(self: Recovery, attempt: Attempt) -> Presence:
            return Presence.CLOSED

        return unfenced

    @contextmanager
    def planted() -> Iterator[None]:
        async def never(self: object, context: Context) -> None: ...

        with _method(Recovery, "_closed", broken), patch("telecom_cart.wakes.Wakes.close_basket", never):
            yield

    return planted()


def recovery_sends_again() -> AbstractContextManager[object]:
    """What is not seen at the platform is ordered once more, to be sure."""

    def broken(found: Any) -> Any:
        async def sending(self: Recovery, attempt: Attempt) -> Any:
            answer = await found(self, attempt)
            if isinstance(answer, Absent):
                cart = Cart("", "", "CAD", 0, 0, 0)
                try:
                    await _order_anew(self._provider, cart, attempt)
                except ProviderError:
                    return answer
                return await found(self, attempt)
            return answer

        return sending

    return _method(Recovery, "_found", broken)


def read_back_skipped() -> AbstractContextManager[object]:
    """Whatever is in the basket is ordered."""
    return patch.object(checkout, "objections", lambda *_, **__: ())


def intent_after_the_call() -> AbstractContextManager[object]:
    """That an order may be made is written down when it was."""

    def broken(submit: Any) -> Any:
        async def late(self: Checkouts, cart: Cart, basket: Basket) -> None:
            set_, prepared = self._set, replace(attempt_of(cart), stage=Stage.PREPARING, submitted_at=None)
            await set_(cart, prepared.reference, stage=Stage.PREPARING, submitted_at=None)
            send = self._provider.checkout

            async def then_written(context: Context, reference: str, **named: Any) -> Any:
                try:
                    return await send(context, reference, **named)
                finally:
                    now = self._repository.now_ms()
                    await set_(cart, reference, stage=Stage.SUBMITTING, submitted_at=now)

            await submit(_with(self, _provider=_Instead(self._provider, checkout=then_written)), cart, basket)

        return late

    return _method(Checkouts, "_submit", broken)


def changes_while_sealed() -> AbstractContextManager[object]:
    """A cart can be changed while it is ordered."""
    return patch("telecom_cart.carts.check_open", lambda cart, if_match: None)


def last_writer_wins() -> AbstractContextManager[object]:
    """What somebody else has written meanwhile is overwritten."""

    def broken(put: Any) -> Any:
        async def blindly(self: Records[Any], key: str, value: Any, *, expect: int | None = None, **named: Any) -> Any:
            return await put(self, key, value, **named)

        return blindly

    return _method(Records, "put", broken)


def lag_from_the_intent() -> AbstractContextManager[object]:
    """What was to be sent so long ago is taken for sent so long ago."""

    def broken(_: Any) -> Any:
        def conclusive(self: Recovery, attempt: Attempt) -> bool:
            lag = self._provider.lookup.lag_seconds
            if lag is None or attempt.submitted_at is None:
                return False
            return self._repository.now_ms() >= attempt.submitted_at + (self._provider.timeout_seconds + lag) * 1000

        return conclusive

    return _method(Recovery, "_is_conclusive", broken)


def changes_repeated() -> AbstractContextManager[object]:
    """A change of the basket that got no answer is made again, and nobody is told: the first one may still come."""

    def broken(change: Any) -> Any:
        async def again(self: DoubleProvider, *given: Any) -> None:
            try:
                await change(self, *given)
            except Unreachable:
                await change(self, *given)

        return again

    return _method(DoubleProvider, "_change", broken)


def closing_is_proof() -> AbstractContextManager[object]:
    """What could be closed is taken for not ordered, although orders are made later."""
    truly = recovery.decide

    def broken(*given: Any, **named: Any) -> recovery.Action:
        return truly(*given, **{**named, "is_atomic": True})

    return patch.object(recovery, "decide", broken)


def one_look_that_lags() -> AbstractContextManager[object]:
    """A refusal and one look that finds nothing are believed, although the look-up lags."""

    def broken(conclusive: Any) -> Any:
        return lambda self, attempt: bool(attempt.refusal) or conclusive(self, attempt)

    return _method(Recovery, "_is_conclusive", broken)


def refusal_believed() -> AbstractContextManager[object]:
    """Who says that there is no order is not asked whether there is."""

    def broken(submit: Any) -> Any:
        async def believing(self: Checkouts, cart: Cart, basket: Basket) -> None:
            send = self._provider.checkout

            async def believed(context: Context, reference: str, **named: Any) -> Any:
                try:
                    return await send(context, reference, **named)
                except Refused as refused:
                    raise NotSent(*refused.reasons) from refused

            await submit(_with(self, _provider=_Instead(self._provider, checkout=believed)), cart, basket)

        return believing

    return _method(Checkouts, "_submit", broken)


def failure_believed() -> AbstractContextManager[object]:
    """Who finds an order that has failed looks for no other, and leaves the basket as it is."""

    def broken(resolve: Any) -> Any:
        async def believing(self: Recovery, cart: Cart, attempt: Attempt, by: str) -> None:
            found = await self._found(attempt)
            if isinstance(found, Found) and not recovery.live_in(found):
                await self._closer.rejected(cart, attempt, ("The platform has recorded it as failed.",))
            else:
                await resolve(self, cart, attempt, by)

        return believing

    return _method(Recovery, "_resolve", broken)


PLANTED: Final[Mapping[str, Callable[[], AbstractContextManager[object]]]] = {
    "order before the lock": order_before_the_lock,
    "retry on a new basket": retry_on_a_new_basket,
    "failure cached": failure_cached,
    "no fence": no_fence,
    "recovery sends again": recovery_sends_again,
    "read-back skipped": read_back_skipped,
    "intent written after the call": intent_after_the_call,
    "changes while it is ordered": changes_while_sealed,
    "the last writer wins": last_writer_wins,
    "lag counted from the intent": lag_from_the_intent,
    "a change without an answer is repeated": changes_repeated,
    "what was closed was not ordered": closing_is_proof,
    "one look that lags is believed after a refusal": one_look_that_lags,
    "a refusal is believed without asking": refusal_believed,
    "a failed order is proof": failure_believed,
}
