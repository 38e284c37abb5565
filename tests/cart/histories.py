"""Random histories of a shop, judged: users, faults of the platform, instances that die and freeze, time that passes.

    python -m tests.cart.histories --count 5000             search
    python -m tests.cart.histories --first 17 --count 1 -v  tell one history
    python -m tests.cart.histories --planted                how many histories it takes to find each planted defect

Everything comes from the seed, and time is simulated: a seed is the same history, whenever it is played.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from mainspring import DueJob, Mainspring
from mainspring.errors import Conflict
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated
from telecom_cart.checkout import Placed, Wish
from telecom_cart.errors import CartError
from telecom_cart.model import Cart, Item
from telecom_cart.provider import Lookup
from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform
from telecom_cart.repository import Repository
from telecom_cart.settings import Settings
from telecom_cart.taxes import Province
from telecom_cart.wakes import NAMESPACE
from tests.cart.gateways import Copy, CopyingDouble
from tests.cart.instances import Instance, Killed
from tests.cart.planted import PLANTED

USERS: Final = ("ann", "bob")
PRODUCTS: Final = (
    Item("phone", "A phone", "device", 1, 499_00),
    Item("plan-10", "10 GB", "plan", 1, 25_00),
    Item("case", "A case", "addon", 2, 19_99),
)
VERBS: Final = (
    "open_session",
    "create_cart",
    "add_item",
    "remove_item",
    "get_cart",
    "validate_context",
    "set_reference",
    "checkout",
    "find_order",
    "close_cart",
    "*",
)
PROCESSING: Final = (FaultKind.PROCESSING, FaultKind.PROCESSING_THEN_DROP)
HIDING: Final = (
    FaultKind.APPLY_THEN_DROP,
    FaultKind.APPLY_THEN_5XX,
    FaultKind.APPLY_THEN_THROTTLE,
    FaultKind.APPLY_THEN_REFUSE,
    FaultKind.APPLY_LATER,
    FaultKind.DELAY,
    *PROCESSING,
)
WAITS: Final = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.3, 1.0, 5.0, 12.0, 25.0)
LAG_SECONDS: Final = 8.0
TIMEOUT_SECONDS: Final = 3.0
QUIET_SECONDS: Final = 330.0
MOST_SECONDS: Final = 7_200.0
SETTINGS: Final = Settings(
    attempt_seconds=15.0,
    answer_seconds=6.0,
    sync_hold_seconds=15.0,
    repeat_seconds=40.0,
    idle_seconds=20.0,
    retry_initial_seconds=2.0,
    retry_max_seconds=20.0,
)
"""Everything sooner: what a history costs is the time that passes in it."""


class Broken(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Asked:
    """A checkout that somebody asked for, and its answer."""

    user: str
    wish: Wish
    answer: Placed | CartError


class DriftingPlatform(Platform):
    """Knows when its prices changed: what is ordered at that moment may have either."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.drifted_at: list[float] = []
        self._drift = 0
        super().__init__(clock)

    @property
    def price_drift(self) -> int:
        return self._drift

    @price_drift.setter
    def price_drift(self, drift: int) -> None:
        if drift != self._drift:
            self.catch_up()  # what was due before has the price of before
            self.drifted_at.append(self.clock())
        self._drift = drift


class History:
    def __init__(self, loop: SimulatedLoop, chance: Random, say: Callable[[str], None]) -> None:
        self.chance = chance
        self.loop = loop
        self._say = say
        self.settings = SETTINGS
        self.platform = DriftingPlatform(loop.time)
        lookup = Lookup(self.chance.choice((0.0, LAG_SECONDS)))
        self.platform.lookup_lag_seconds = self.chance.uniform(0, LAG_SECONDS) if lookup.lag_seconds else 0.0
        is_atomic = self.chance.choice((True, False))
        self.platform.lingers_seconds = 0.0 if is_atomic else self.chance.choice((0.0, 1.0, 5.0))
        self.provider = CopyingDouble(
            self.platform, faults=Faults(), lookup=lookup, timeout_seconds=TIMEOUT_SECONDS, is_atomic=is_atomic
        )
        self.machine = Random(self.chance.getrandbits(32))
        """The chance of the machine: of ids, and of what is added to waits."""
        self.ms = Mainspring("memory://", clock=SimulatedClock(loop), randomness=self.machine)
        self._own = Repository(self.ms)
        """The store, through no gate."""
        self.known: set[str] = set()
        self.instances: list[Instance] = []
        self.kills = 0
        self.asked: list[Asked] = []
        self.shown: list[Cart] = []
        """Carts as users saw them."""
        self.wishes: dict[str, list[Wish]] = {user: [] for user in USERS}
        self.at_work: set[asyncio.Task[None]] = set()
        self.surprises: list[BaseException] = []
        for _ in range(self.chance.randint(1, 2)):
            self.begin_instance()
        self.ms.job("* * * * *", name="sweep", catchup="none", overlap="skip", timeout_seconds=240)(self._sweep)

    def say(self, text: str) -> None:
        self._say(f"{self.loop.time():10.3f} {text}")

    # --- instances ------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Instance]:
        return [each for each in self.instances if not each.gate.is_dead]

    @property
    def awake(self) -> list[Instance]:
        return [each for each in self.alive if not each.gate.is_frozen]

    def begin_instance(self) -> Instance:
        begun = Instance(
            self.ms,
            self.provider,
            self.settings,
            self.chance,
            machine=self.machine,
            time=self.loop.time,
            known=self.known,
        )
        self.instances.append(begun)
        begun.shop.attend()
        return begun

    def _attended(self) -> Instance:
        """Somebody who is awake hears the timers."""
        if not self.awake:
            self.begin_instance().start()
        attending = self.chance.choice(self.awake)
        attending.shop.attend()
        return attending

    async def _sweep(self, job: DueJob) -> None:
        if self.awake:
            await self.awake[0].shop._clean_up(job)

    # --- what happens ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._change),
            (2, self._change_at_once),
            (6, self._check_out),
            (4, self._check_out_at_once),
            (3, self._repeat),
            (6, self._fault),
            (1, self._heal),
            (2, self._kill),
            (2, self._freeze),
            (2, self._wake),
            (1, self._order_late),
            (2, self._order_copied),
            (2, self._second),
            (1, self._expire),
            (1, self._remove),
            (2, self._change_late),
        ]
        await self._fill()
        for _ in range(self.chance.randint(6, 22)):
            await self.chance.choices([move for _, move in moves], [weight for weight, _ in moves])[0]()
            await asyncio.sleep(self.chance.choice(WAITS))

    async def _fill(self) -> None:
        for user in USERS[: self.chance.randint(1, len(USERS))]:
            for product in self.chance.sample(PRODUCTS, self.chance.randint(1, 2)):
                await self.instances[0].shop.carts.add_item(user, product)
        await asyncio.sleep(self.chance.choice((0.0, 0.2, 0.25, 1.0)))

    def _begin(self, what: str, work: Callable[[Instance], Awaitable[None]]) -> None:
        if not self.awake:
            self._attended()
        instance = self.chance.choice(self.awake)

        async def worked() -> None:
            try:
                await work(instance)
            except (CartError, Killed) as error:
                self.say(f"{what}: {error!r}")
            except Exception as error:  # noqa: BLE001  it is judged in the end
                self.say(f"{what}: {error!r}")
                self.surprises.append(error)
            else:
                self.say(f"{what}: done")

        self.say(f"{what} at {self.instances.index(instance)}")
        task = asyncio.ensure_future(worked())
        self.at_work.add(task)
        task.add_done_callback(self.at_work.discard)

    async def _change(self) -> None:
        self._change_of(self.chance.choice(USERS))

    async def _change_at_once(self) -> None:
        user = self.chance.choice(USERS)
        for _ in range(self.chance.randint(2, 4)):
            self._change_of(user)

    def _change_of(self, user: str) -> None:
        product = self.chance.choice(PRODUCTS)
        kind, quantity = self.chance.random(), self.chance.randint(0, 5)
        province = self.chance.choice((Province.QC, Province.ON))

        async def change(at: Instance) -> None:
            carts = at.shop.carts
            if kind < 0.5:
                self.shown.append(await carts.add_item(user, product))
            elif kind < 0.8:
                self.shown.append(await carts.set_quantity(user, product.product_id, quantity))
            elif kind < 0.9:
                self.shown.append(await carts.set_province(user, province))
            else:
                self.shown.append(await carts.get(user))

        self._begin(f"{user} changes {product.product_id}", change)

    async def _change_late(self) -> None:
        """A change of the basket is not answered, and may happen while a later state of it is being ordered."""
        user, product = self.chance.choice(USERS), self.chance.choice(PRODUCTS)
        verb = self.chance.choice(("add_item", "add_item", "remove_item", "set_reference"))
        self.provider.faults.add(verb, Fault(FaultKind.APPLY_LATER, 1, self.chance.choice((1.0, 2.0, 4.0))))
        self.provider.faults.add("checkout", Fault(FaultKind.DELAY, 1, self.chance.choice((1.0, 2.5))))
        self.say(f"{verb} comes late")
        for quantity in (self.chance.randint(0, 4), self.chance.randint(1, 4)):

            async def change(at: Instance, quantity: int = quantity) -> None:
                await at.shop.carts.add_item(user, product)
                await at.shop.carts.set_quantity(user, product.product_id, quantity)

            self._begin(f"{user} wants {quantity} {product.product_id}", change)
            await asyncio.sleep(self.chance.choice((0.3, 0.6)))
        self._ask(user, await self._wish(user))

    async def _remove(self) -> None:
        user = self.chance.choice(USERS)
        self._begin(f"{user} deletes", lambda at: at.shop.carts.delete(user))

    async def _check_out(self) -> None:
        user = self.chance.choice(USERS)
        self._ask(user, await self._wish(user))

    async def _check_out_at_once(self) -> None:
        user = self.chance.choice(USERS)
        for _ in range(self.chance.randint(2, 4)):
            self._ask(user, await self._wish(user))

    async def _repeat(self) -> None:
        user = self.chance.choice(USERS)
        if self.wishes[user]:
            self._ask(user, self.chance.choice(self.wishes[user]))

    async def _wish(self, user: str) -> Wish:
        found = await self._own.carts.get(user)
        key = self.chance.choice((None, None, "k1", "k2", "k3"))
        kind = self.chance.random()
        if found is None or kind < 0.4:
            return Wish(key=key)
        if kind < 0.7:
            return Wish(key=key, cart_id=found.value.id)
        return Wish(key=key, if_match=found.value.etag)

    def _ask(self, user: str, wish: Wish) -> None:
        self.wishes[user].append(wish)

        async def ask(at: Instance) -> None:
            try:
                placed = await at.shop.checkouts.run(user, wish)
            except CartError as error:
                self.asked.append(Asked(user, wish, error))
                raise
            self.asked.append(Asked(user, wish, placed))
            self.say(f"{user} has ordered {placed.order.reference}: {placed.order.number}")

        self._begin(f"{user} checks out {wish}", ask)

    async def _fault(self) -> None:
        verb, kind = self.chance.choice(VERBS), self.chance.choice(list(FaultKind))
        if self.chance.random() < 0.5:  # what hides whether there is an order
            verb, kind = "checkout", self.chance.choice(HIDING)
        times = self.chance.choice((1, 1, 1, 2, 4, None if verb != "checkout" else 1))
        seconds = self.chance.choice((0.02, 0.05, 1.0, 5.0, 12.0, 30.0))
        fault = Fault(kind, times, min(seconds, TIMEOUT_SECONDS - 0.1) if kind in PROCESSING else seconds)
        self.say(f"{verb} meets {fault}")
        if kind is FaultKind.PRICE_DRIFT and times != 1:
            self.platform.price_drift = 1  # for everybody, until it is well again
        self.provider.faults.add(verb, fault)

    async def _heal(self) -> None:
        self.say("the platform is well")
        self.provider.faults.clear()
        self.platform.price_drift = 0

    async def _kill(self) -> None:
        victim = self.chance.choice(self.alive)
        self.say(f"{self.instances.index(victim)} is killed")
        self.kills += 1
        victim.kill()
        self._attended()

    async def _freeze(self) -> None:
        if not self.awake:
            return
        victim = self.chance.choice(self.awake)
        self.say(f"{self.instances.index(victim)} is frozen")
        victim.gate.freeze()
        self._attended()

    async def _wake(self) -> None:
        for each in self.alive:
            if each.gate.is_frozen:
                self.say(f"{self.instances.index(each)} wakes up")
                each.gate.wake()

    async def _order_late(self) -> None:
        """Somebody freezes when he is about to send an order, which arrives a while later, and its answer is lost."""
        ambushed = self.awake
        for each in ambushed:
            each.gate.freezes_before = "checkout"
        self.provider.faults.add("checkout", Fault(self.chance.choice(HIDING), 1, TIMEOUT_SECONDS - 0.1))
        self.say("who orders next freezes before it")
        await self._check_out()
        await asyncio.sleep(self.chance.uniform(0, self.settings.attempt_seconds + 5))
        for each in ambushed:
            each.gate.freezes_before = ""
        self._attended()
        await self._wake()

    async def _order_copied(self) -> None:
        """A gateway sends an order twice; the first one, or the second, may be stored as failed."""
        kind = self.chance.choice((FaultKind.FAILED_ORDER_400, FaultKind.FAILED_ORDER_400, *HIDING))
        self.provider.faults.add("checkout", Fault(kind, 1, TIMEOUT_SECONDS - 0.1))
        seconds = self.chance.choice((0.02, 0.5, 2.0, 6.0, 12.0, 30.0))
        self.provider.copy = Copy(seconds, self.chance.choice(("created", "created", "failed")))
        self.say(f"{kind} and {self.provider.copy} for the next order")
        await self._check_out()

    async def _second(self) -> None:
        self.begin_instance().start()
        self.say(f"{len(self.instances) - 1} is started")

    async def _expire(self) -> None:
        self.say(f"{self.platform.expire()} baskets expire")

    # --- the end --------------------------------------------------------------------------------------------

    async def judge(self) -> None:
        await self._heal()
        await self._wake()
        self._attended()
        await asyncio.sleep(1)
        await self._heal()  # from what was under way, too
        await asyncio.sleep(QUIET_SECONDS)
        self._check(not self.surprises, f"nobody meets an error that is none of the cart's: {self.surprises!r}")
        self._check(not self.at_work, "every request is answered")
        await self._judge_rest()
        await self._judge_orders()
        self._judge_tags()
        await self._judge_answers()
        await self._judge_repeats()
        await self._judge_orders()

    async def _judge_rest(self) -> None:
        """Nothing is stuck, and nothing is left behind."""
        used = set()
        async for document in self._own.carts.scan():
            cart = document.value
            self._check(not cart.is_sealed, f"no attempt stays open: {cart}")
            self._check(cart.sync != "pending" and cart.syncing is None, f"carts are synchronised: {cart}")
            self._check(not cart.order_id, f"what was ordered is cleaned up: {cart}")
            used.add(cart.context.basket_id if cart.context else "")
        there = {id for id in list(self.platform.baskets) if self.platform.basket(id)}
        left = (there & self.known) - used
        self._check(len(left) <= self.kills, f"baskets that are no cart's are closed: {left}")

    async def _judge_orders(self) -> None:
        """What the platform has is what we have."""
        live = [order for order in self.platform.orders if order.is_live]
        per_cart = Counter(order.reference.rpartition("-")[0] for order in live)
        self._check(all(count == 1 for count in per_cart.values()), f"a cart is ordered once: {per_cart}")
        ours = {document.value.number: document.value async for document in self._own.orders.scan()}
        self._check(
            ours.keys() == {order.number for order in live}, f"orders are ours and theirs: {ours.keys()}, {live}"
        )
        for order in live:
            record = ours[order.number]
            self._check(record.reference == order.reference, f"an order has its reference: {record}, {order}")
            theirs = {(line.product_id, line.quantity): line.price for line in order.lines}
            wanted = {(item.product_id, item.quantity): item.price for item in record.items}
            self._check(theirs.keys() == wanted.keys(), f"what was wanted is ordered: {record}, {order}")
            attempt = await self._own.attempts.get(order.reference)
            self._check(attempt is not None, f"an order has its attempt: {order}")
            assert attempt is not None
            begun = attempt.value.started_at / 1000 - (self._own.now_ms() / 1000 - self.loop.time())
            subtotal = record.totals.subtotal if record.platform_subtotal is None else record.platform_subtotal
            self._check(subtotal == order.subtotal, f"an order says what it costs: {record}, {order}")
            if not any(begun - 0.01 <= at <= order.made_at for at in self.platform.drifted_at):
                self._check(theirs == wanted, f"at the price that was wanted: {record}, {order}")
                self._check(record.totals.subtotal == order.subtotal, f"with that subtotal: {record}, {order}")
        for reference, at in (told for each in self.instances for told in each.told_failed):
            cart_id = reference.rpartition("-")[0]
            wrong = [order for order in live if order.reference == reference]
            wrong += [each for each in live if each.reference.rpartition("-")[0] == cart_id and each.made_at < at]
            self._check(not wrong, f"nothing was ordered where that was told: {reference} at {at}, {wrong}")

    def _judge_tags(self) -> None:
        """What was shown with one ETag is one cart: no change that was acknowledged was overwritten by another."""
        by_tag: dict[str, Cart] = {}
        for cart in self.shown:
            other = by_tag.setdefault(cart.etag, cart)
            is_same = (cart.items, cart.province) == (other.items, other.province)
            self._check(is_same, f"a tag is of one cart: {cart}, {other}")

    async def _judge_answers(self) -> None:
        """What was said about an order stays true."""
        of_cart: dict[str, str] = {}
        of_key: dict[tuple[str, str], str] = {}
        for asked in self.asked:
            if not isinstance(asked.answer, Placed):
                continue
            order = asked.answer.order
            self._check(of_cart.setdefault(order.cart_id, order.number) == order.number, f"one answer: {asked}")
            self._check(asked.wish.named in (None, order.cart_id), f"the cart that was meant: {asked}")
            if asked.wish.key:
                bound = of_key.setdefault((asked.user, asked.wish.key), order.cart_id)
                self._check(bound == order.cart_id, f"a key stands for one cart: {asked}")
            stored = await self._own.orders.get(order.id)
            self._check(stored is not None and stored.value == order, f"an order stays: {asked}, {stored}")

    async def _judge_repeats(self) -> None:
        """All is well, so whoever asks again gets the order; a cart that was not ordered can be."""
        shop = self._attended().shop
        for asked in list(self.asked):
            if isinstance(asked.answer, Placed) and (asked.wish.key or asked.wish.named):
                again = await self._answer(asked.user, asked.wish)
                self._check(isinstance(again, Placed) and again.order == asked.answer.order, f"{asked}: {again}")
        for asked in list(self.asked):
            wish = asked.wish
            found = await self._own.carts.get(asked.user)
            if wish.key is None or found is None or not found.value.items:
                continue
            bound = await shop.checkouts._keys.cart_of(asked.user, wish.key, None)
            if bound == found.value.id:
                again = await self._answer(asked.user, Wish(key=wish.key))
                self._check(isinstance(again, Placed), f"a failure is not the result of a key: {asked}: {again!r}")
        for user in USERS:
            found = await self._own.carts.get(user)
            if found is not None and found.value.items:
                again = await self._answer(user, Wish(cart_id=found.value.id))
                self._check(isinstance(again, Placed), f"a cart can be ordered: {again!r}")

    async def _answer(self, user: str, wish: Wish) -> Placed | CartError:
        try:
            return await self._attended().shop.checkouts.run(user, wish)
        except CartError as error:
            return error

    def _check(self, holds: bool, promise: str) -> None:
        if not holds:
            self.say(f"broken: {promise}")
            raise Broken(promise)


def look(seed: int, say: Callable[[str], None] = lambda _: None) -> Broken | None:
    """Run the history of a seed, and answer what it broke."""
    return play(Random(seed), say)


def play(chance: Random, say: Callable[[str], None] = lambda _: None) -> Broken | None:
    """Run the history in which all that can be one way or another is decided by `chance`."""

    async def main(loop: SimulatedLoop) -> Broken | None:
        history = History(loop, chance, say)
        async with history.ms:
            with suppress(Conflict):
                await history.ms.namespaces.create(NAMESPACE)
            try:
                async with asyncio.timeout(MOST_SECONDS):
                    await history.run()
                    await history.judge()
            except Broken as broken:
                return broken
            except TimeoutError:
                return Broken("whoever asks is answered")
            finally:
                for each in history.alive:
                    each.kill()
                for task in list(history.at_work):
                    task.cancel()
                await asyncio.sleep(0)
        return None

    return run_simulated(main)


def first_broken(seeds: Sequence[int]) -> int | None:
    return next((seed for seed in seeds if look(seed) is not None), None)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.cart.histories", description="Search histories of the cart.")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--planted", action="store_true", help="look for the planted defects instead")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what happens")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    say = (lambda text: print(text, flush=True)) if given.verbose else (lambda _: None)  # noqa: T201
    seeds = range(given.first, given.first + given.count)
    if given.planted:
        missed = 0
        for name, planted in PLANTED.items():
            with planted():
                found = first_broken(seeds)
            missed += found is None
            print(f"| {name} | {'not found' if found is None else found - given.first + 1} |", flush=True)  # noqa: T201
        return int(missed > 0)
    broken = 0
    for done, seed in enumerate(seeds, 1):
        if (violation := look(seed, say)) is not None:
            broken += 1
            print(f"seed {seed}: {violation}"[:2000], flush=True)  # noqa: T201
        if done % 500 == 0:
            print(f"{done} histories, {broken} broken", flush=True)  # noqa: T201
    print(f"{len(seeds)} histories, {broken} broken")  # noqa: T201
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
