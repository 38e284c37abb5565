"""Carts as real processes that are killed or frozen at every step of a checkout, on one SQLite file.

    python -m tests.cart.kill_matrix            all of it, four cases at a time
    python -m tests.cart.kill_matrix shopify-sent    those whose name contains that

A case is a provider, how late its look-up is, the place at which the process dies, what befalls the request that makes
the order, and who comes next: the same process again, or a second one that ran beside it all the time. What the
simulated platform has in the end is the judge.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from telecom_cart import crashes
from tests.cart.processes import ROOT, environment
from tests.servers.process import free_port

SENT: Final = "sent"
"""Between the request to the platform and its reply."""
FROZEN: Final = "frozen"
"""Not killed, but stopped before the request, and woken up when others have recovered."""
PLACES: Final = (*crashes.STEPS, crashes.FENCED, SENT, FROZEN, crashes.ACCEPTED)
LATER: Final = ("processing", "processingThenDrop")
"""Only Shopify makes orders later, and only then says that it has accepted them."""
FAULTS: Final = (
    "",
    "applyThenDrop",
    "applyThen5xx",
    "applyLater",
    "failBefore",
    "failedOrder400",
    "throttle",
    "applyThenThrottle",
    "applyThenRefuse",
    *LATER,
)
COMPLETION_SECONDS: Final = 6
LAG_SECONDS: Final = 3
ATTEMPT_SECONDS: Final = 3
PATIENCE_SECONDS: Final = 60
ITEMS: Final[tuple[dict[str, Any], ...]] = (
    {"productId": "phone", "name": "A phone", "type": "device", "quantity": 1, "price": 499_00},
    {"productId": "plan-10", "name": "10 GB", "type": "plan", "quantity": 2, "price": 25_00},
)


FIXED: Final = {crashes.FENCED: "applyLater", SENT: "", crashes.ACCEPTED: "processing"}
"""What has to befall the request for a place to be reached."""


@dataclass(frozen=True)
class Case:
    provider: str
    place: str
    fault: str
    is_strong: bool
    is_restart: bool

    def __str__(self) -> str:
        lookup, next_ = "strong" if self.is_strong else "eventual", "restart" if self.is_restart else "second"
        return "-".join((self.provider, self.place, self.fault or "none", lookup, next_))


def matrix() -> Iterator[Case]:
    for provider, place, fault in itertools.product(("salesforce", "shopify"), PLACES, FAULTS):
        if place == SENT and fault:
            continue  # what befalls it is that it takes long
        if place == crashes.FENCED and fault not in ("applyLater", "failBefore"):
            continue  # only then there is something to fence
        if provider != "shopify" and (fault in LATER or place == crashes.ACCEPTED):
            continue
        if place == crashes.ACCEPTED and fault not in ("", "processing"):
            continue
        for is_strong, is_restart in itertools.product((True, False), (True, False)):
            yield Case(provider, place, fault, is_strong, is_restart)


def covering() -> list[Case]:
    """Every place with both providers, and every fault, look-up and successor with some."""
    chosen = []
    either = [fault for fault in FAULTS if fault not in LATER]
    for number, place in enumerate(PLACES):
        for turn, provider in enumerate(("salesforce", "shopify")):
            if place == crashes.ACCEPTED and provider != "shopify":
                continue
            fault = either[(2 * number + turn) % len(either)]
            if place in FIXED:
                fault = FIXED[place]
            chosen.append(Case(provider, place, fault, (number + turn) % 2 == 0, (number // 2 + turn) % 2 == 0))
    for is_strong, fault in itertools.product((True, False), LATER):
        chosen.append(Case("shopify", crashes.ANSWERED, fault, is_strong, not is_strong))
    return chosen


@contextmanager
def _process(module: str, *arguments: str, folder: Path, **armed: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "errors").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment() | armed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise AssertionError(f"{module} did not start: {(folder / 'errors').read_text()}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def simulator(provider: str, folder: Path) -> Iterator[str]:
    port = free_port()
    with _process("telecom_cart.simulators", provider, "--port", str(port), folder=folder):
        yield f"http://127.0.0.1:{port}/_sim"


class Trial:
    """One case. The processes end with the block that `stack` is."""

    def __init__(self, case: Case, platform: str, folder: Path, stack: ExitStack) -> None:
        self.case, self._platform, self._folder, self._stack = case, platform, folder, stack
        self._http = stack.enter_context(httpx.Client(timeout=30))

    def run(self) -> None:
        case = self.case
        lag = 0 if case.is_strong else LAG_SECONDS
        self._steer("settings", {"lookupLagSeconds": lag, "orderNoFromReference": case.is_strong})
        armed = {}
        if case.place == FROZEN:
            armed["TELECOM_CART_FREEZE_AT"] = crashes.SUBMITTING
        elif case.place != SENT:
            armed["TELECOM_CART_CRASH_AT"] = case.place
        victim, at = self._cart(**armed)
        other = None if case.is_restart else self._cart()[1]
        cart = self._filled(at)
        if case.place == SENT:
            self._steer("faults", {"verb": "checkout", "kind": "delay", "seconds": 2})
        elif case.fault:
            seconds = 4 if case.fault in LATER else 5
            self._steer("faults", {"verb": "checkout", "kind": case.fault, "seconds": seconds})
        self._struck(victim, at, cart)
        heir = other or self._cart()[1]
        order = self._ordered(heir, cart)
        if case.place == FROZEN:
            victim.send_signal(signal.SIGCONT)
            time.sleep(2)
            assert self._ordered(at, cart) == order
        elif case.fault == "applyLater":
            time.sleep(5)
        self._judge(heir, cart, order)

    # --- what is done ---------------------------------------------------------------------------------------

    def _cart(self, **armed: str) -> tuple[subprocess.Popen[str], str]:
        port = free_port()
        platform = self._platform.removesuffix("/_sim")
        arguments = ["serve", "--port", str(port), "--store", f"sqlite:///{self._folder / 'cart.db'}"]
        arguments += ["--provider", self.case.provider, "--provider-url", platform, "--simulated"]
        arguments += ["--lookup", "strong" if self.case.is_strong else str(LAG_SECONDS)]
        arguments += ["--attempt-seconds", str(ATTEMPT_SECONDS), "--answer-seconds", "4"]
        armed["TELECOM_CART_SHOPIFY_COMPLETION_SECONDS"] = str(COMPLETION_SECONDS)
        process = self._stack.enter_context(_process("telecom_cart", *arguments, folder=self._folder, **armed))
        return process, f"http://127.0.0.1:{port}/v1"

    def _steer(self, what: str, body: object) -> Any:
        return self._http.post(f"{self._platform}/{what}", json=body).raise_for_status().json()

    def _seen(self) -> Any:
        return self._http.get(f"{self._platform}/state").raise_for_status().json()

    def _filled(self, at: str) -> str:
        for item in ITEMS:
            cart = self._http.post(f"{at}/carts/ann/items", json=item).raise_for_status().json()
        until = time.monotonic() + PATIENCE_SECONDS
        while self._http.get(f"{at}/carts/ann").raise_for_status().json()["syncStatus"] != "synced":
            assert time.monotonic() < until, "Expected the cart to be synchronised"
            time.sleep(0.1)
        return str(cart["id"])

    def _struck(self, victim: subprocess.Popen[str], at: str, cart: str) -> None:
        """Check out until the victim is dead or stands still, or the second process has made the order before."""

        def ask() -> None:
            # A fault may end an attempt before the place is reached; the next one reaches it.
            while not is_over.is_set():
                try:
                    answer = self._http.post(f"{at}/carts/ann/checkout", json={"cartId": cart})
                except (httpx.HTTPError, RuntimeError):  # who was frozen answers when the trial is over
                    return
                if answer.status_code == 200:
                    return
                time.sleep(0.2)

        is_over = threading.Event()
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            is_late = not self.case.is_restart and not asking.is_alive()
            if is_late or (self.case.place == SENT and not self._seen()["faults"]):
                victim.kill()
            if victim.poll() is not None or (self.case.place == FROZEN and _is_stopped(victim.pid)):
                is_over.set()
                return
            time.sleep(0.02)
        raise AssertionError(f"Expected the process to reach {self.case.place}")

    def _ordered(self, at: str, cart: str) -> Any:
        """The order, asked for as long as it is not known."""
        until = time.monotonic() + PATIENCE_SECONDS
        told = ""
        while time.monotonic() < until:
            answer = self._http.post(f"{at}/carts/ann/checkout", json={"cartId": cart})
            body = answer.json()
            if answer.status_code == 200:
                body.pop("replayed")
                return body
            assert body["code"] in (
                "CHECKOUT_IN_PROGRESS",
                "CHECKOUT_UNKNOWN",
                "CHECKOUT_FAILED",
                "EXTERNAL_PROVIDER_ERROR",
            ), body
            told = body["code"]
            time.sleep(0.3)
        raise AssertionError(f"Expected an order in the end, heard {told}")

    def _judge(self, at: str, cart: str, order: Any) -> None:
        live = [each for each in self._seen()["orders"] if each["is_live"]]
        assert len(live) == 1, live
        [theirs] = live
        assert theirs["reference"] == order["reference"]
        assert theirs["number"] == order["orderNumber"] or order["orderNumber"].endswith(theirs["number"])
        assert (
            theirs["subtotal"] == order["totals"]["subtotal"] == sum(each["price"] * each["quantity"] for each in ITEMS)
        )
        lines = {(line["product_id"], line["quantity"]) for line in theirs["lines"]}
        assert lines == {(each["productId"], each["quantity"]) for each in ITEMS}
        assert self._ordered(at, cart) == order
        bare = self._http.post(f"{at}/carts/ann/checkout").json()
        assert (bare["orderId"], bare["replayed"]) == (order["orderId"], True)
        until = time.monotonic() + PATIENCE_SECONDS
        while open_ := [each for each in self._seen()["baskets"] if not each["closed"]]:
            assert time.monotonic() < until, f"Expected no basket to be left, got {open_}"
            time.sleep(0.2)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def try_case(case: Case, folder: Path) -> None:
    folder.mkdir()
    with ExitStack() as stack:
        Trial(case, stack.enter_context(simulator(case.provider, folder)), folder, stack).run()


@contextmanager
def side_by_side(cases: Iterable[Case], folder: Path, at_once: int = 4) -> Iterator[dict[Case, Future[None]]]:
    """Try all of them, some at a time: a case waits more than it works."""
    with ThreadPoolExecutor(at_once, thread_name_prefix="kill-matrix") as pool:
        yield {case: pool.submit(try_case, case, folder / str(case)) for case in cases}
        pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.cart.kill_matrix")
    parser.add_argument("name", nargs="?", default="", help="part of the name of a case; all without one")
    parser.add_argument("--at-once", type=int, default=4, help="how many cases run side by side (default: %(default)s)")
    options = parser.parse_args()
    cases = [case for case in matrix() if options.name in str(case)]
    if not cases:
        parser.error(f"no case has {options.name!r} in its name, such as {next(iter(matrix()))}")
    started, broken = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory(prefix="cart-kill-matrix-") as folder,
        side_by_side(cases, Path(folder), options.at_once) as trials,
    ):
        for number, (case, trial) in enumerate(trials.items(), 1):
            error = trial.exception()
            broken += error is not None
            told = "ok" if error is None else f"BROKEN: {error!r}"
            seconds = time.monotonic() - started
            print(f"{number} of {len(cases)}, {seconds:.0f} s, {broken} broken: {case}: {told}", flush=True)  # noqa: T201
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
