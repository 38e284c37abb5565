"""What became of an attempt that nobody finished. It is asked, never sent again.

| stage      | order at the platform | its basket | then                                                              |
|------------|-----------------------|------------|-------------------------------------------------------------------|
| preparing  | -                     | -          | nothing was sent: not made                                        |
| submitting | found, live           | any        | recorded; if there are two, the first one, and a person is told   |
| submitting | absent                | there      | the basket is closed, and it is asked for again                   |
| submitting | absent                | closed,    | not made, if the platform orders and closes atomically;           |
|            |                       | just now   | otherwise as if it was gone                                       |
| submitting | absent                | gone       | asked again when it is gone for time-out and lag: not made;       |
|            |                       |            | without a bound of that lag a person decides                      |
| submitting | being made, or cannot | any        | unknown, asked again later                                        |
|            | be told               |            |                                                                   |
| submitting | denied by a person    | closed,    | not made, unless it is found or being made now, if the platform   |
|            |                       | just now   | orders and closes atomically; otherwise as if it was gone         |
| submitting | denied by a person    | gone       | it may have been ordered since he looked: as above, if it is      |
|            |                       |            | absent; otherwise he is told, when nothing can be made any more,  |
|            |                       |            | to look again, and if he denies it again, not made                |
| submitting | in another shop       | any        | unknown: nobody here is asked, those who serve it or a person are |

One at a time looks, by a hold on the attempt. Closing the basket is the fence: an instance that was frozen before it
sent its request wakes up and orders a basket that is gone.

A refusal of an order that was sent is one of the things that are not known: it may be the answer to its repeat by a
gateway. So is an order that is found, and has failed or was cancelled: the repeat may have made another one, or still
make it. Both only give the reasons for which, in the end, it was not made; such an order counts as absent.

Each process counts for itself how long a basket has been gone, from its own first look, by a monotonic clock: a
clock that is set, or a machine that starts an hour ahead, ends no wait.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Final, NoReturn

from mainspring.errors import MainspringError
from telecom_cart import crashes
from telecom_cart.closer import Closer
from telecom_cart.model import Attempt, Cart, Hold, Stage, Unknown
from telecom_cart.provider import (
    Absent,
    Closed,
    Found,
    Lookup,
    PlacedOrder,
    Provider,
    ProviderError,
    Unsure,
)
from telecom_cart.repository import Repository
from telecom_cart.trust import DOUBT, Trust

DENIED = "A person found that there is no order."
UNBOUNDED = "The platform cannot tell; a person has to decide."
DOUBTED = f"{DOUBT}; a person has to decide."
_WAITING: Final = 100_000
"""How many baskets are remembered as gone; for one that is forgotten, the wait starts over."""

logger = logging.getLogger("telecom_cart")


class Unresolved(Exception):
    """Nobody can tell yet: ask again."""


class Presence(Enum):
    """What is known of the basket of an attempt."""

    THERE = auto()
    GONE = auto()
    CLOSED = auto()
    """It was there, and we closed it: it can no longer be ordered, and was not ordered before if closing is atomic."""
    UNKNOWN = auto()


class Action(Enum):
    RECORD = auto()
    CLOSE_BASKET = auto()
    NOT_MADE = auto()
    ASK_LATER = auto()
    ASK_A_PERSON = auto()


def decide(
    found: Found | Absent | Unsure,
    basket: Presence,
    *,
    lookup: Lookup,
    is_atomic: bool,
    is_conclusive: bool,
) -> Action:
    """The table above. `is_conclusive`: the basket had been gone for time-out and lag when the platform was asked."""
    if live_in(found):
        return Action.RECORD
    if isinstance(found, Unsure) or basket is Presence.UNKNOWN:
        return Action.ASK_LATER
    if basket is Presence.THERE:
        return Action.CLOSE_BASKET
    is_proved = is_conclusive or (basket is Presence.CLOSED and is_atomic)
    if lookup.lag_seconds is None and not is_proved:
        return Action.ASK_A_PERSON
    return Action.NOT_MADE if is_proved else Action.ASK_LATER


def live_in(found: Found | Absent | Unsure) -> list[PlacedOrder]:
    """The orders that count."""
    return [order for order in found.orders if order.is_live] if isinstance(found, Found) else []


class Recovery:
    def __init__(
        self, *, repository: Repository, provider: Provider, closer: Closer, trust: Trust, hold_seconds: float
    ) -> None:
        """`hold_seconds`: how long it is left to whoever began it or looks at it, who may have died."""
        self._repository = repository
        self._provider = provider
        self._closer = closer
        self._trust = trust
        self._hold_seconds = hold_seconds
        self._gone: dict[str, float] = {}
        """By reference: since when the basket is known here to be gone, by the clock of the event loop."""

    async def run(self, user_id: str, cart_id: str, *, own: str = "") -> None:
        """Find out what became of the open attempt of a cart. Nothing, if there is none.

        `own` is the reference of an attempt of the caller, who need not wait for its deadline. `Unresolved`: later.
        """
        by = self._repository.new_id()
        cart = await self._repository.change(user_id, partial(self._taken, by, cart_id, own))
        if cart is None or cart.attempt is None or cart.attempt.held is None or cart.attempt.held.by != by:
            return
        attempt = cart.attempt
        logger.info("finding out what became of %s of %s", attempt.reference, user_id)
        if (order := await self._repository.order_of(cart.id)) is not None:
            await self._closer.ordered(cart, attempt, [PlacedOrder(order.number, "recorded", is_live=True)])
        elif attempt.stage is Stage.PREPARING:
            await self._closer.not_made(cart, attempt, ("It was interrupted before anything was sent.",))
        elif attempt.place != self._provider.place and attempt.denied:
            await self._closer.not_made(cart, attempt, (DENIED,))  # nobody here could close its basket
        elif attempt.place != self._provider.place:
            place = attempt.place or "a platform that was not written down"
            told = f"It was begun at {place}, which is not served here; a person has to decide."
            await self._unresolved(cart, by, told, needs_person=True)
        elif attempt.denied:
            await self._fence(cart, attempt, by)
        else:
            await self._resolve(cart, attempt, by)

    async def _fence(self, cart: Cart, attempt: Attempt, by: str) -> None:
        """A person has found that there is no order: see to it that there can be none. Who looks again finds more."""
        presence = await self._closed(attempt)
        has_seen_all = attempt.is_over and presence is not Presence.CLOSED
        if presence is Presence.UNKNOWN and not has_seen_all:
            await self._unresolved(cart, by, f"{DENIED} The platform has not closed it yet.")
        is_over, settled = self._is_over(attempt), self._is_conclusive(attempt)
        found = await self._found(attempt)
        is_proved = settled and not isinstance(found, Unsure)
        if live := live_in(found):
            await self._recorded(cart, attempt, live)
        elif isinstance(found, Unsure) and found.is_being_made:
            await self._unresolved(cart, by, f"{DENIED} The platform may still make one.")
        elif has_seen_all or is_proved or (presence is Presence.CLOSED and self._provider.is_atomic):
            self._gone.pop(attempt.reference, None)
            await self._closer.not_made(cart, attempt, (DENIED,))
        elif is_over:
            told = f"{DENIED} The basket was gone by then, and it may have been made since: look again."
            await self._unresolved(cart, by, told, needs_person=True, is_over=True)
        else:
            await self._unresolved(cart, by, f"{DENIED} The platform may still make one.")

    def _taken(self, by: str, cart_id: str, own: str, cart: Cart | None) -> Cart | None:
        if cart is None or cart.id != cart_id or cart.attempt is None or not cart.attempt.is_open:
            return None
        now, attempt = self._repository.now_ms(), cart.attempt
        seconds = self._hold_seconds
        if attempt.reference != own and attempt.is_under_way(now=now, seconds=seconds):
            raise Unresolved("It is still under way")
        if attempt.held is not None and attempt.held.lasts(now=now, seconds=seconds):
            raise Unresolved("Somebody else is looking")
        return replace(cart, attempt=replace(attempt, held=Hold(by, now + round(seconds * 1000))))

    async def _resolve(self, cart: Cart, attempt: Attempt, by: str) -> None:
        presence = Presence.UNKNOWN
        for _ in range(2):
            conclusive = self._is_conclusive(attempt)
            found = await self._found(attempt)
            if not isinstance(found, Unsure) and not live_in(found) and presence is Presence.UNKNOWN:
                presence = await self._presence(attempt)
            action = decide(
                found,
                presence,
                lookup=self._provider.lookup,
                is_atomic=self._provider.is_atomic,
                is_conclusive=conclusive,
            )
            if action is not Action.CLOSE_BASKET:
                break
            presence = await self._closed(attempt)
            crashes.reach(crashes.FENCED)
        match action:
            case Action.RECORD:
                await self._recorded(cart, attempt, live_in(found))
            case Action.NOT_MADE:
                reasons = attempt.refusal or (f"{_seen(found)}, and can make none.",)
                await self._closer.not_made(cart, attempt, reasons)
            case _:
                reason = UNBOUNDED if action is Action.ASK_A_PERSON else _reason(found)
                is_for_person = isinstance(found, Unsure) and found.needs_person
                is_over = self._is_over(attempt) and not (isinstance(found, Unsure) and found.is_being_made)
                await self._unresolved(
                    cart, by, reason, needs_person=is_for_person or reason == UNBOUNDED, is_over=is_over
                )
        self._gone.pop(attempt.reference, None)

    async def _recorded(self, cart: Cart, attempt: Attempt, live: list[PlacedOrder]) -> None:
        for order in live:
            if not order.is_findable:
                with suppress(MainspringError):  # the order has to be recorded, whatever else is
                    await self._trust.note(order)
        await self._closer.ordered(cart, attempt, live)

    def _is_conclusive(self, attempt: Attempt) -> bool:
        """Whether an order of a basket that is gone would be seen by now. That it was sent says nothing: who sends may
        have been frozen in between."""
        lag = self._provider.lookup.lag_seconds
        return lag is not None and self._is_gone_for(attempt, self._provider.timeout_seconds + lag)

    def _is_over(self, attempt: Attempt) -> bool:
        """Whether nothing can be made any more of a basket that is gone. It may have been, and not be seen yet."""
        return self._is_gone_for(attempt, 0 if self._provider.is_atomic else self._provider.timeout_seconds)

    def _is_gone_for(self, attempt: Attempt, seconds: float) -> bool:
        since = self._gone.get(attempt.reference)
        return since is not None and asyncio.get_running_loop().time() >= since + seconds

    def _noted(self, attempt: Attempt, presence: Presence) -> Presence:
        """Count from when the basket was last seen there."""
        if presence is Presence.THERE:
            self._gone.pop(attempt.reference, None)
        elif presence is Presence.CLOSED or (presence is Presence.GONE and attempt.reference not in self._gone):
            self._gone.pop(attempt.reference, None)
            self._gone[attempt.reference] = asyncio.get_running_loop().time()
        while len(self._gone) > _WAITING:
            del self._gone[next(iter(self._gone))]
        return presence

    async def asked(self, attempt: Attempt, *, ticket: str = "") -> Found | Absent | Unsure:
        """What the platform says, as it says it."""
        assert attempt.context is not None, "Expected a basket, which is written down before it is ordered"
        try:
            return await self._provider.find_order(
                attempt.context, attempt.reference, since=attempt.since, ticket=ticket
            )
        except ProviderError as error:
            return Unsure(str(error))

    async def _found(self, attempt: Attempt) -> Found | Absent | Unsure:
        """What is believed of that."""
        found = await self.asked(attempt, ticket=attempt.ticket)
        is_none = not isinstance(found, Unsure) and not live_in(found)
        if is_none and not await self._trust.believes(since=attempt.trust):
            return Unsure(DOUBTED, needs_person=True)
        return found

    async def _presence(self, attempt: Attempt) -> Presence:
        assert attempt.context is not None
        try:
            is_there = await self._provider.validate_context(attempt.context)
        except ProviderError:
            return Presence.UNKNOWN
        return self._noted(attempt, Presence.THERE if is_there else Presence.GONE)

    async def _closed(self, attempt: Attempt) -> Presence:
        assert attempt.context is not None
        try:
            closed = await self._provider.close_cart(attempt.context)
        except ProviderError:
            return Presence.UNKNOWN
        return self._noted(attempt, Presence.CLOSED if closed is Closed.CLOSED else Presence.GONE)

    async def _unresolved(
        self, cart: Cart, by: str, reason: str, *, needs_person: bool = False, is_over: bool = False
    ) -> NoReturn:
        def decide(present: Cart | None) -> Cart | None:
            if present is None or present.attempt is None or present.attempt.held is None:
                return None
            if present.id != cart.id or present.attempt.held.by != by:
                return None
            now = self._repository.now_ms()
            # Whoever began it is no longer at it, so the next one need not wait for the deadline.
            deadline = min(present.attempt.deadline_at, now)
            attempt = replace(
                present.attempt,
                held=None,
                unresolved=reason,
                deadline_at=deadline,
                needs_person=needs_person,
                is_over=is_over,
                denied=present.attempt.denied and not is_over,  # that was before
            )
            return present.with_attempt(attempt, now=now)

        reference = cart.attempt.reference if cart.attempt is not None else ""
        await self._repository.unknown.put(reference, Unknown(cart.user_id, cart.id))
        await self._repository.change(cart.user_id, decide)
        raise Unresolved(reason)


def _reason(found: Found | Absent | Unsure) -> str:
    return found.reason if isinstance(found, Unsure) else f"{_seen(found)}, and may still make one."


def _seen(found: Found | Absent | Unsure) -> str:
    is_there = isinstance(found, Found)
    return f"The platform has {'an order of it that has failed or was cancelled' if is_there else 'no order of it'}"
