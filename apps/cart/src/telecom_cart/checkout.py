"""A checkout: at most one order of a cart, and the same answer to every repeat.

| step                                                                        | durable before the next  |
|-----------------------------------------------------------------------------|--------------------------|
| 1 in the user's queue: is it a repeat? may this cart be ordered?            |                          |
| 2 a timer for the recovery; the cart is sealed, with an attempt             | attempt, `preparing`     |
| 3 the basket is made equal, gets the attempt's reference, and is read back  | its id                   |
| 4 from here on an order may be made                                         | `submitting`             |
| 5 one request, made at most once                                            | at the platform          |
| 6 the order is recorded, then the attempt closed                            | order                    |
| 7 the cart is cleaned up                                                    |                          |

Steps 3 to 7 go on when the request that began them does not. Only two outcomes of step 5 are certain: an order that was
made, and a request that was not sent. Everything else is left to `recovery`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from mainspring.errors import MainspringError
from telecom_cart import crashes
from telecom_cart.closer import Closer, failure_of, unknown
from telecom_cart.contexts import lines_of, made_equal, objections
from telecom_cart.errors import (
    AmbiguousCheckout,
    CartError,
    CartNotFound,
    CheckoutInProgress,
    EmptyCart,
    FieldProblem,
    Outdated,
    ValidationFailed,
)
from telecom_cart.keys import Keys
from telecom_cart.model import Attempt, Cart, Context, Order, Stage
from telecom_cart.provider import (
    Absent,
    Basket,
    ContextGone,
    Found,
    NotSent,
    PlacedOrder,
    Provider,
    Refused,
    Uncertain,
    Unreachable,
)
from telecom_cart.queues import Queues
from telecom_cart.recovery import Recovery, Unresolved, live_in
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.trust import Trust
from telecom_cart.wakes import Wakes

_LOOK_SECONDS: Final = 0.2
_LET_GO_SECONDS: Final = 10.0
"""How long to wait for a synchronisation under way."""
_VERIFY_SECONDS: Final = 3.0
"""How long to look for an order that was just made: that matters for later checkouts, not for this one."""
AWAY: Final = "The platform did not take it"

logger = logging.getLogger("telecom_cart")


@dataclass(frozen=True)
class Wish:
    """What tells a repeat from a new wish, if the user says so."""

    key: str | None = None
    if_match: str | None = None
    cart_id: str | None = None

    @property
    def named(self) -> str | None:
        """The cart that is meant."""
        return self.cart_id or self.tagged

    @property
    def tagged(self) -> str | None:
        return self.if_match.partition(".")[0] if self.if_match else None


@dataclass(frozen=True)
class Placed:
    order: Order
    is_replay: bool


class _Lost(Exception):
    """Somebody else has ended the attempt."""


class _Overtaken(Exception):
    """Another instance orders this cart, or has ordered it."""


class Checkouts:
    def __init__(
        self,
        *,
        repository: Repository,
        provider: Provider,
        queues: Queues,
        wakes: Wakes,
        keys: Keys,
        closer: Closer,
        recovery: Recovery,
        trust: Trust,
        settings: Settings,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._repository = repository
        self._provider = provider
        self._queues = queues
        self._wakes = wakes
        self._keys = keys
        self._closer = closer
        self._recovery = recovery
        self._trust = trust
        self._settings = settings
        self._spawn = spawn
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By the reference of the attempt: whoever makes it here, or finds out what became of it."""

    async def run(self, user_id: str, wish: Wish) -> Placed:
        async with self._queues.turn(user_id):
            begun = await self._begin(user_id, wish)
        if isinstance(begun, Placed):
            return begun
        cart, is_ours = begun
        assert cart.attempt is not None
        await self._wait(cart)
        return await self._verdict(cart, cart.attempt.reference, is_replay=not is_ours)

    # --- steps 1 and 2 --------------------------------------------------------------------------------------

    async def _begin(self, user_id: str, wish: Wish) -> Placed | tuple[Cart, bool]:
        """An order that was made before; or a sealed cart, and whether we sealed it."""
        cart = await self._repository.cart(user_id)
        meant = await self._meant(user_id, wish, cart)
        order = None if meant is None else await self._repository.order_of(meant)
        if order is not None and order.user_id == user_id:
            return Placed(order, is_replay=True)
        if meant is not None and (cart is None or cart.id != meant):
            raise CartNotFound("This user has no such cart.")
        if meant is None and wish.key is None and (order := await self._last(user_id, cart)) is not None:
            return Placed(order, is_replay=True)
        if cart is None:
            raise CartNotFound
        if cart.is_sealed:
            return cart, False
        if wish.if_match is not None and wish.if_match != cart.etag:
            raise Outdated
        if not cart.items:
            raise EmptyCart
        try:
            return await self._seal(cart), True
        except _Overtaken:
            return await self._begin(user_id, wish)

    async def _meant(self, user_id: str, wish: Wish, cart: Cart | None) -> str | None:
        """The id of the cart that is to be ordered, or was; None: nobody has said. A new key is a new wish: it stands
        for the cart that there is, once there is something in it, and never for an old order."""
        if wish.cart_id is not None and wish.if_match is not None and wish.cart_id != wish.tagged:
            raise ValidationFailed(errors=(FieldProblem("/cartId", "Expected the cart that If-Match names"),))
        if wish.key is None:
            return wish.named
        present = wish.named or (cart.id if cart is not None and (cart.items or cart.is_sealed) else None)
        bound = await self._keys.cart_of(user_id, wish.key, present)
        if wish.named is not None and bound != wish.named:
            told = "This key was used for another cart: a new wish needs a new key"
            raise ValidationFailed(errors=(FieldProblem("Idempotency-Key", told),))
        return bound

    async def _last(self, user_id: str, cart: Cart | None) -> Order | None:
        """The last order, if nothing else can be meant. It cannot be told from a wish for the present cart for a while:
        a repeat that was delayed looks the same."""
        if cart is not None and cart.order_id:
            return await self._repository.order_of(cart.id)
        listed = await self._repository.orders_of(user_id, limit=1)
        if not listed:
            return None
        [latest] = listed
        if cart is None or not cart.items or cart.id == latest.cart_id:
            return await self._repository.order_of(latest.cart_id)
        since = self._repository.now_ms() - latest.at
        if since < self._settings.repeat_seconds * 1000:
            raise AmbiguousCheckout
        return None

    async def _seal(self, cart: Cart) -> Cart:
        seconds = self._settings.attempt_seconds
        number = 1 if cart.attempt is None else cart.attempt.number + 1
        reference = f"{cart.id}-{number}"
        await self._wakes.recover(cart.user_id, cart.id, reference, in_seconds=seconds)
        now, trust = self._repository.now_ms(), await self._trust.turn()

        def decide(present: Cart | None) -> Cart:
            if present is None or present.id != cart.id or present.is_sealed or present.order_id:
                raise _Overtaken
            if present.attempt != cart.attempt:
                raise _Overtaken  # by one that is over: its reference must not be used again
            if present.revision != cart.revision:
                raise Outdated("The cart was changed while it was being ordered. Nothing was ordered.")
            attempt = Attempt(
                reference=reference,
                number=number,
                started_at=now,
                deadline_at=now + round(seconds * 1000),
                items=present.items,
                totals=present.totals(datetime.fromtimestamp(now / 1000, UTC).date()),
                place=self._provider.place,
                trust=trust,
            )
            return present.with_attempt(attempt, now=now)

        sealed = await self._repository.change(cart.user_id, decide)
        assert sealed is not None
        crashes.reach(crashes.SEALED)
        self._begun(reference, self._attempt(sealed))
        return sealed

    def _begun(self, reference: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """It goes on when nobody waits for it any more, and ends with the shop."""
        self._under_way[reference] = task = self._spawn(work)
        task.add_done_callback(lambda _: self._under_way.pop(reference, None))
        return task

    # --- waiting --------------------------------------------------------------------------------------------

    async def _wait(self, cart: Cart) -> None:
        """Until the attempt is over, or the user has waited long enough."""
        attempt = attempt_of(cart)
        task = self._under_way.get(attempt.reference)
        now, seconds = self._repository.now_ms(), self._settings.attempt_seconds
        if task is None and not attempt.is_under_way(now=now, seconds=seconds):
            task = self._begun(attempt.reference, self._find_out(cart))
        if task is not None:
            await asyncio.wait({task}, timeout=self._settings.answer_seconds)
            return
        clock = asyncio.get_running_loop().time  # the store's may be set back
        until = clock() + self._settings.answer_seconds
        while clock() < until:
            present = await self._repository.cart(cart.user_id)
            if present is None or present.id != cart.id or not present.is_sealed:
                return
            if attempt_of(present).reference != attempt.reference:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _find_out(self, cart: Cart) -> None:
        with suppress(Unresolved):  # who asked is told that, too
            await self._recovery.run(cart.user_id, cart.id)

    async def _verdict(self, cart: Cart, reference: str, *, is_replay: bool) -> Placed:
        """What is on record by now. The order is read last: it is recorded before its attempt is closed, and a later
        attempt, which may have ordered although this one has not, seals the cart until then."""
        closed = await self._repository.attempts.get(reference)
        present = await self._repository.cart(cart.user_id)
        if (order := await self._repository.order_of(cart.id)) is not None:
            return Placed(order, is_replay=is_replay)
        later = present.attempt if present is not None and present.id == cart.id and present.is_sealed else None
        if closed is not None and (later is None or later.reference == reference):
            raise failure_of(closed.value)
        if later is not None and later.unresolved:
            raise unknown(later)
        raise CheckoutInProgress

    # --- steps 3 to 7 ---------------------------------------------------------------------------------------

    async def _attempt(self, cart: Cart) -> None:
        attempt = cart.attempt
        assert attempt is not None
        try:
            basket = await self._prepare(cart, attempt)
            if basket is None:
                return
            crashes.reach(crashes.PREPARED)
            now, since = self._repository.now_ms(), basket.read_at or 0
            submitting = await self._set(cart, attempt.reference, stage=Stage.SUBMITTING, submitted_at=now, since=since)
            crashes.reach(crashes.SUBMITTING)
            await self._submit(submitting, basket)
        except _Lost:
            return

    async def _prepare(self, cart: Cart, attempt: Attempt) -> Basket | None:
        """The basket as it is to be ordered. None: the attempt is over."""
        wanted = lines_of(attempt.items)
        present = await self._let_go(cart)

        async def keep(made: Context) -> None:
            nonlocal present
            try:
                present = await self._set(present, attempt.reference, context=made)
            except _Lost:
                if made.basket_id and made != present.context:  # nobody else knows of it
                    await self._wakes.close_basket(made)
                raise

        try:
            known = present.context
            if known is not None and known.basket_id and known.place == self._provider.place:
                await keep(known)
            _, basket = await made_equal(
                self._provider, known, wanted, currency=cart.currency, keep=keep, reference=attempt.reference
            )
        except (Unreachable, ContextGone) as error:
            await self._end(present, self._closer.not_made, f"{AWAY}: {error}")
            return None
        except Refused as refused:
            await self._end(present, self._closer.rejected, *refused.reasons)
            return None
        found = objections(basket, wanted, currency=cart.currency)
        if basket.reference != attempt.reference:
            found = (*found, "The platform did not keep the reference of the order")
        if found:
            await self._end(present, self._closer.rejected, *found)
            return None
        return basket

    async def _let_go(self, cart: Cart) -> Cart:
        """Wait for a synchronisation under way. One that does not end keeps its basket, and there will be another."""
        present = await self._repository.cart(cart.user_id)
        clock = asyncio.get_running_loop().time
        until = clock() + _LET_GO_SECONDS
        while present is not None and present.id == cart.id and present.syncing is not None:
            if clock() >= until or self._repository.now_ms() >= present.syncing.until:
                left = present.context
                if left is not None and left.basket_id:
                    await self._wakes.close_basket(left)

                def let_go(open_: Cart, left: Context | None = left) -> Cart:
                    # It may have made a basket just now, and written that down.
                    return replace(open_, syncing=None, context=None) if open_.context == left else open_

                present = await self._change(present, let_go, attempt_of(present).reference)
                continue
            await asyncio.sleep(_LOOK_SECONDS)
            present = await self._repository.cart(cart.user_id)
        if present is None or present.id != cart.id:
            raise _Lost
        return present

    async def _submit(self, cart: Cart, basket: Basket) -> None:
        attempt = attempt_of(cart)
        assert attempt.context is not None

        async def accepted(ticket: str) -> None:
            await self._note(cart, attempt.reference, ticket=ticket)
            crashes.reach(crashes.ACCEPTED)

        try:
            placed = await self._provider.checkout(attempt.context, attempt.reference, basket=basket, accepted=accepted)
        except NotSent as refused:
            await self._end(cart, self._closer.rejected, *refused.reasons)
        except Refused as refused:
            crashes.reach(crashes.ANSWERED)
            await self._doubt(cart, attempt, *refused.reasons)
        except Unreachable as error:
            nothing_sent = replace(attempt, submitted_at=None)
            await self._closer.not_made(cart, nothing_sent, (f"{AWAY}: {error}",))
        except (Uncertain, ContextGone):
            crashes.reach(crashes.ANSWERED)
            await self._recover(cart, attempt)
        else:
            crashes.reach(crashes.ANSWERED)
            if placed.is_live:
                await self._closer.ordered(cart, attempt, await self._verified(attempt, placed))
            else:
                await self._doubt(cart, attempt, f"The platform's order {placed.number} is {placed.status}")

    async def _verified(self, attempt: Attempt, placed: PlacedOrder) -> list[PlacedOrder]:
        """The orders to be recorded, of which one was placed. Whether a strong look-up finds it is seen here, and not
        when the answer to another one was lost."""
        is_findable, orders = placed.is_findable, [placed]
        if is_findable and self._provider.lookup.lag_seconds == 0:
            try:
                async with asyncio.timeout(_VERIFY_SECONDS):
                    found = await self._recovery.asked(attempt)
            except TimeoutError:
                return orders
            if not isinstance(found, Found | Absent):
                return orders
            seen = found.orders if isinstance(found, Found) else ()
            live = live_in(found)
            is_findable = any(order.number == placed.number for order in seen)
            if live and not is_findable:
                said = "the platform named %s for %s, of which it has others"
                logger.error(said, placed.number, attempt.reference)
                orders = live
            else:
                orders += [order for order in live if order.number != placed.number]
        if not is_findable:
            logger.error("the order %s is not found by its reference %s", placed.number, attempt.reference)
        with suppress(MainspringError):  # the order has to be recorded, whatever else is
            await self._trust.note(replace(placed, is_findable=is_findable))
        return orders

    async def _note(self, cart: Cart, reference: str, **fields: object) -> None:
        """Write down what the platform said, for whoever looks at the attempt, who may be somebody else by now."""

        def decide(present: Cart | None) -> Cart | None:
            if present is None or present.id != cart.id or present.attempt is None or not present.attempt.is_open:
                return None
            if present.attempt.reference != reference:
                return None
            return replace(present, attempt=replace(present.attempt, **fields))  # type: ignore[arg-type]

        try:
            await self._repository.change(cart.user_id, decide)
        except (CartError, MainspringError) as error:  # it is found out without that, later
            logger.warning("what the platform said of %s was not written down: %s", reference, error)

    async def _doubt(self, cart: Cart, attempt: Attempt, *reasons: str) -> None:
        """The platform said that there is no order, after one was asked for: that is found out."""
        await self._note(cart, attempt.reference, refusal=reasons)
        await self._recover(cart, attempt)

    async def _recover(self, cart: Cart, attempt: Attempt) -> None:
        """Ask now; and if nobody can tell, soon, not at the deadline, which was for the case that we die."""
        try:
            await self._recovery.run(cart.user_id, cart.id, own=attempt.reference)
        except Unresolved:
            with suppress(MainspringError):  # it asks later, then
                soon = self._settings.retry_initial_seconds
                await self._wakes.recover(cart.user_id, cart.id, attempt.reference, in_seconds=soon)

    async def _end(
        self, cart: Cart, close: Callable[[Cart, Attempt, tuple[str, ...]], Coroutine[Any, Any, None]], *reasons: str
    ) -> None:
        await close(cart, attempt_of(cart), reasons)

    async def _set(self, cart: Cart, reference: str, **fields: object) -> Cart:
        """Write down how far the attempt has come, if it is still ours."""

        def decide(present: Cart) -> Cart:
            attempt = replace(attempt_of(present), **fields)  # type: ignore[arg-type]
            context = attempt.context or present.context
            return replace(present.with_attempt(attempt, now=self._repository.now_ms()), context=context)

        return await self._change(cart, decide, reference)

    async def _change(self, cart: Cart, decide: Callable[[Cart], Cart], reference: str) -> Cart:
        def ours(present: Cart | None) -> Cart:
            if present is None or present.id != cart.id or present.attempt is None or not present.attempt.is_open:
                raise _Lost
            if present.attempt.reference != reference or present.attempt.held is not None:
                raise _Lost
            return decide(present)

        changed = await self._repository.change(cart.user_id, ours)
        assert changed is not None
        return changed


def attempt_of(cart: Cart) -> Attempt:
    assert cart.attempt is not None, "Expected a cart that is being ordered"
    return cart.attempt
