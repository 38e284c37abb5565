"""`python -m telecom_cart`: it serves until it is told to end, and a person may decide what nobody else can."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.model import State
from telecom_cart.__main__ import main
from telecom_cart.api.problems import STATUSES
from telecom_cart.checkout import Wish
from telecom_cart.demo import TRIALS
from telecom_cart.errors import CheckoutUnknown
from telecom_cart.model import CheckoutStatus, Item
from telecom_cart.providers.double import DoubleProvider
from telecom_cart.providers.faults import Fault, FaultKind, Faults
from telecom_cart.providers.platform import Platform
from telecom_cart.repository import Repository
from telecom_cart.server import settlement_on
from telecom_cart.settings import Settings
from telecom_cart.shop import Shop
from tests.cart.processes import COMMAND, ROOT, demo, environment, running
from tests.cart.served_cart import PHONE
from tests.servers.process import accepts_connections, free_port

pytestmark = pytest.mark.slow

HIDDEN = {"TELECOM_CART_SALESFORCE_CLIENT_SECRET": "hunter2"}


def run(arguments: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment() | more,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def serving(port: int) -> list[str]:
    store = ["--store", "sqlite:///cart.db", "--provider", "double"]
    return ["serve", *store, "--port", str(port), "--attempt-seconds", "1"]


def answered(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_the_help_teaches() -> None:
    said = CliRunner().invoke(main, ["--help"]).output
    for command in ("serve", "demo", "unknown", "settle"):
        assert f"python -m telecom_cart {command}" in said
        assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
    said = CliRunner().invoke(main, ["serve", "--help"]).output
    assert "TELECOM_CART_SHOPIFY_STOREFRONT_TOKEN" in said
    settings = {option for option in re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE) if option != "--end-with-stdin"}
    assert len(settings) == 10
    for option in settings:
        assert f"TELECOM_CART_{option[2:].replace('-', '_').upper()}" in said


def test_every_setting_may_be_in_the_environment_instead(tmp_path: Path) -> None:
    named = {"PROVIDER": "Double", "STORE": "memory://", "PORT": "0", "CURRENCY": "JPY"}
    done = run(["serve"], tmp_path, **{f"TELECOM_CART_{name}": value for name, value in named.items()})
    assert (done.returncode, "--currency" in done.stderr, "JPY" in done.stderr) == (2, True, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve"],
        ["serve", "--provider", "double", "--lookup", "soon"],
        ["serve", "--provider", "double", "--currency", "JPY"],
        ["serve", "--provider", "double", "--currency", "cad"],
        ["settle", "ann"],
        ["settle", "ann", "--order", "7", "--not-made"],
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--provider", "shopify", "--provider-url", "foo", "--simulated"],
        ["--provider", "shopify", "--provider-url", "ftp://shop.example", "--simulated"],
        ["--provider", "shopify", "--provider-url", "http://ann:hunter2@shop.example", "--simulated"],
        ["--provider", "shopify", "--provider-url", "http://shop.example:99999", "--simulated"],
        ["--provider", "shopify", "--provider-url", "http://shop.example/?a=b", "--simulated"],
        ["--provider", "double", "--provider-url", "http://shop.example"],
        ["--provider", "double", "--simulated"],
    ],
)
def test_a_platform_that_cannot_be_is_refused_at_the_start(arguments: list[str], tmp_path: Path) -> None:
    done = run(["serve", "--store", "memory://", "--port", "0", *arguments], tmp_path)
    assert (done.returncode, "--provider-url" in done.stderr, len(done.stderr.splitlines())) == (1, True, 1)
    assert "hunter2" not in done.stderr


def test_a_folder_or_a_port_that_cannot_be_used_is_said_in_a_line(tmp_path: Path) -> None:
    done = run(["serve", "--provider", "double", "--store", "sqlite:////proc/x/s1.db"], tmp_path)
    assert (done.returncode, "/proc/x" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
    done = run(["demo", "--folder", "/proc/x"], tmp_path)
    assert (done.returncode, "/proc/x" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for ports in (
            ["--simulator-port", str(port), "--port", str(free_port())],
            ["--port", str(port), "--simulator-port", str(free_port())],
        ):
            done = run(["demo", *ports], tmp_path)
            assert (done.returncode, str(port) in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_a_folder_is_of_one_demo_at_a_time_and_its_cart_is_named_while_it_runs(tmp_path: Path) -> None:
    named = tmp_path / ".telecom-cart/cart.pid"
    with demo(tmp_path):
        before = named.read_text()
        done = run(["demo", "--port", str(free_port()), "--simulator-port", str(free_port())], tmp_path)
        assert (done.returncode, "Another demo runs in .telecom-cart" in done.stderr) == (1, True)
        assert named.read_text() == before
    assert not named.exists()


def test_a_demo_that_ends_while_the_platform_orders_ends_without_tracebacks(tmp_path: Path) -> None:
    with demo(tmp_path) as (cart, simulator), httpx.Client(trust_env=False, timeout=30) as client:
        answered(client.post(f"{cart}/v1/carts/cid/items", json=PHONE))
        slow = {"verb": "checkout", "kind": "delay", "seconds": 30}
        answered(client.post(f"{simulator}/_sim/faults", json=slow))
        asking = subprocess.Popen(
            ["curl", "-s", "-X", "POST", f"{cart}/v1/carts/cid/checkout"], stdout=subprocess.DEVNULL
        )
        time.sleep(1.5)
    asking.wait(20)
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_what_is_missing_is_named_and_secrets_are_not_said(tmp_path: Path) -> None:
    done = run(["serve", "--provider", "salesforce"], tmp_path)
    assert (done.returncode, "--provider-url" in done.stderr) == (1, True)
    url = ["--provider-url", "https://shop.example"]
    done = run(["serve", "--provider", "salesforce", *url], tmp_path, **HIDDEN)
    assert done.returncode == 1
    for name in ("ORGANIZATION", "SITE", "CLIENT_ID", "ADMIN_CLIENT_SECRET"):
        assert f"TELECOM_CART_SALESFORCE_{name} in the environment" in done.stderr
    assert "TELECOM_CART_SALESFORCE_CLIENT_SECRET" not in done.stderr
    assert "hunter2" not in done.stderr
    told = {f"TELECOM_CART_SALESFORCE_{name}": "x" for name in ("ORGANIZATION", "SITE", "CLIENT_ID")}
    done = run(["serve", "--provider", "salesforce", *url], tmp_path, **HIDDEN, **told)
    assert "TELECOM_CART_SALESFORCE_ADMIN_CLIENT_ID" in done.stderr  # nobody has said that a look-up is strong


def test_a_cart_that_is_told_to_end_ends_in_order_and_carts_and_orders_survive(tmp_path: Path) -> None:
    port = free_port()
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
    with client:
        with running(serving(port), tmp_path, until="The cart is at") as process:
            answered(client.post("/v1/carts/ann/items", json=PHONE))
            placed = answered(client.post("/v1/carts/ann/checkout"))
            kept = answered(client.post("/v1/carts/bob/items", json=PHONE))
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        with running(serving(port), tmp_path, until="The cart is at"):
            assert answered(client.get("/v1/carts/bob"))["id"] == kept["id"]
            assert answered(client.post("/v1/carts/ann/checkout")) == {**placed, "replayed": True}


def test_a_checkout_that_is_not_unknown_is_not_settled(tmp_path: Path) -> None:
    with running(serving(0), tmp_path, until="The cart is at"):
        pass
    done = run(["settle", "ann", "--not-made", "--store", "sqlite:///cart.db"], tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no checkout that needs a decision" in done.stderr


def test_a_store_that_is_not_there_is_not_made_by_those_who_only_look(tmp_path: Path) -> None:
    for arguments in (["unknown"], ["settle", "ann", "--not-made"]):
        done = run([*arguments, "--store", "sqlite:///carts.db"], tmp_path)
        assert (done.returncode, "There is no database carts.db" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "carts.db").touch()
    done = run(["unknown", "--store", "sqlite:///carts.db"], tmp_path)
    assert (done.returncode, "No carts were ever served" in done.stderr) == (1, True)


def leave_unknown(client: httpx.Client, cart: str, simulator: str, *, kind: str = "applyThenDrop") -> list[str]:
    """A checkout of which nobody can tell what became, and how its store is named."""
    answered(client.post(f"{cart}/v1/carts/ann/items", json=PHONE))
    for fault in ({"verb": "checkout", "kind": kind}, {"verb": "find_order", "kind": "down", "times": None}):
        answered(client.post(f"{simulator}/_sim/faults", json=fault))
    asked = client.post(f"{cart}/v1/carts/ann/checkout")
    assert (asked.status_code, asked.json()["code"]) == (503, "CHECKOUT_UNKNOWN")
    return ["--store", "sqlite:///.telecom-cart/cart.db"]


def test_a_person_settles_what_stayed_unknown(tmp_path: Path) -> None:
    with demo(tmp_path) as (cart, simulator), httpx.Client(trust_env=False, timeout=30) as client:
        store = leave_unknown(client, cart, simulator)
        [order] = answered(client.get(f"{simulator}/_sim/ledger"))["orders"]
        listed = run(["unknown", *store], tmp_path)
        assert listed.stdout.split("\t")[:3] == ["ann", order["reference"], "salesforce:simulated/simulated"]
        done = run(["settle", "ann", "--order", order["number"], *store], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        placed = answered(client.post(f"{cart}/v1/carts/ann/checkout"))
        assert (placed["orderNumber"], placed["provider"]) == (order["number"], "salesforce")
        assert run(["unknown", *store], tmp_path).stdout == ""


def test_a_person_says_that_nothing_was_ordered_and_the_cart_is_open_again_soon(tmp_path: Path) -> None:
    with demo(tmp_path) as (cart, simulator), httpx.Client(trust_env=False, timeout=30) as client:
        store = leave_unknown(client, cart, simulator, kind="failBefore")
        done = run(["settle", "ann", "--not-made", *store], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "nothing was ordered" in done.stdout
        until = time.monotonic() + 15
        while (found := answered(client.get(f"{cart}/v1/carts/ann")))["checkoutStatus"] == "unknown":
            assert time.monotonic() < until
            time.sleep(0.1)
        assert (found["checkoutStatus"], found["attempt"]["closing"]) == ("failed", "not_made")
        assert "A person found that there is no order." in found["checkoutError"]["detail"]


def test_an_order_without_a_number_is_none_that_a_person_could_have_found(tmp_path: Path) -> None:
    with demo(tmp_path) as (cart, simulator), httpx.Client(trust_env=False, timeout=30) as client:
        store = leave_unknown(client, cart, simulator)
        for number in ("", " ", "7\t8", "9" * 101):
            done = run(["settle", "ann", "--order", number, *store], tmp_path)
            assert (done.returncode, done.stdout) == (1, "")
            assert "Expected the number of an order" in done.stderr
        assert answered(client.get(f"{cart}/v1/carts/ann"))["checkoutStatus"] == "unknown"


async def test_who_settles_wakes_those_who_run_and_does_not_leave_it_to_their_patience(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cart.db'}"
    provider = DoubleProvider(Platform(time.time, run="served"), faults=Faults(), latency_seconds=0.001)
    ms = Mainspring(url)
    shop = Shop(ms, provider, Settings(attempt_seconds=0.3, retry_initial_seconds=300))
    async with ms, shop:
        await shop.carts.add_item("ann", Item("phone", "A phone", "device", 1, 499_00))
        provider.faults.add("checkout", Fault(FaultKind.FAIL_BEFORE))
        provider.faults.add("find_order", Fault(FaultKind.DOWN, None))
        with pytest.raises(CheckoutUnknown):
            await shop.checkouts.run("ann", Wish())
        async with settlement_on(url) as settlement:
            await settlement.settle("ann", order_number=None)
        async with asyncio.timeout(15):
            while (await shop.carts.get("ann")).checkout_status is not CheckoutStatus.FAILED:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_to_settle_one_checkout_does_nothing_to_those_of_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cart.db'}"
    platform = Platform(time.time, run="served")
    provider = DoubleProvider(platform, faults=Faults(), latency_seconds=0.001)
    ms = Mainspring(url)
    shop = Shop(ms, provider, Settings(attempt_seconds=0.3, retry_initial_seconds=0.3))
    async with ms, shop:
        for user in ("ann", "bob"):
            await shop.carts.add_item(user, Item("phone", "A phone", "device", 1, 499_00))
            provider.faults.add("checkout", Fault(FaultKind.APPLY_THEN_DROP))
            provider.faults.add("find_order", Fault(FaultKind.DOWN, None))
            with pytest.raises(CheckoutUnknown):
                await shop.checkouts.run(user, Wish())
    await asyncio.sleep(0.5)  # the recovery of both is due, and nobody is there
    async with settlement_on(url) as settlement:
        await settlement.settle("ann", order_number=platform.orders[0].number)
        await asyncio.sleep(0.5)
        assert [cart.user_id async for cart in settlement.unknown()] == ["bob"]
    ms = Mainspring(url)
    async with ms.at_rest():
        repository = Repository(ms)
        cart = await repository.cart("bob")
        assert cart is not None
        assert cart.checkout_status is CheckoutStatus.UNKNOWN
        [latest] = [each.value async for each in repository.orders.scan()]
        assert (latest.user_id, latest.place) == ("ann", "double:served")
        assert {timer.state async for timer in ms.timers.iterate(namespace="cart")} == {State.SCHEDULED}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_neither_the_cart_nor_the_platform_of_a_demo_outlives_it(tmp_path: Path, number: signal.Signals) -> None:
    port, simulator = free_port(), free_port()
    ports = ["--port", str(port), "--simulator-port", str(simulator)]
    with running(["demo", *ports], tmp_path, until="Ctrl-C ends both") as process:
        assert accepts_connections(port)
        assert accepts_connections(simulator)
        process.send_signal(number)
        assert process.wait(20) == (-number if number == signal.SIGKILL else 0)
        until = time.monotonic() + 20
        while (accepts_connections(port) or accepts_connections(simulator)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not accepts_connections(port)
        assert not accepts_connections(simulator)


def test_the_walk_of_the_readme_works_as_written(tmp_path: Path) -> None:
    text = (ROOT / "apps/cart/README.md").read_text()
    walk = re.search(r"## A walk.*?```sh\n(.*?)```", text, re.DOTALL)
    assert walk is not None
    with demo(tmp_path) as (cart, _):
        script = re.sub(r"(?m)^(curl \S+)", r"\1 -w '\\n'", walk[1]).replace("http://127.0.0.1:8710", cart)
        done = subprocess.run(["bash", "-euc", script], check=True, capture_output=True, text=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    said = [answer.get("code") or answer.get("orderNumber") or answer.get("checkoutStatus") for answer in answers]
    old, new = said[8], said[13]
    assert said[:8] == [*["pending"] * 6, "VALIDATION_ERROR", "PRECONDITION_FAILED"]
    assert said[8:14] == [old, old, "pending", old, "AMBIGUOUS_CHECKOUT", new]
    assert [order["orderNumber"] for order in answers[14]["orders"]] == [new]
    assert (answers[15]["status"], old == new) == ("healthy", False)
    assert {each["pointer"] for each in answers[6]["errors"]} == {"/productId", "/name", "/type", "/quantity", "/price"}


def test_every_code_is_in_the_readme_with_its_status() -> None:
    text = (ROOT / "apps/cart/README.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if re.match(r"\| [A-Z_]{5}", line)]
    told = {code.strip(): statuses for codes, statuses in rows for code in codes.split(",")}
    assert told.keys() == STATUSES.keys()
    assert all(str(STATUSES[code]) in statuses for code, statuses in told.items())


def test_the_trials_of_the_demo_go_as_it_says(tmp_path: Path) -> None:
    with demo(tmp_path) as (cart, simulator):
        folder = tmp_path / ".telecom-cart"
        said = TRIALS.format(cart=cart, simulator=simulator, folder=folder, pid_file=folder / "cart.pid")
        pasted = "\n".join(line for line in said.splitlines() if line.startswith("  "))
        done = subprocess.run(["bash", "-uc", pasted], check=True, capture_output=True, text=True, timeout=120)
        ledger = answered(httpx.get(f"{simulator}/_sim/ledger", trust_env=False))
    ann, bob, again, killed, *cid = [line for line in done.stdout.splitlines() if not line.startswith('"number"')]
    placed = [json.loads(line) for line in (ann, bob, again, *cid)]
    assert killed == ""
    assert [each["replayed"] for each in placed] == [False, False, True, True]
    numbers = [order["number"] for order in ledger["orders"]]
    assert [each["orderNumber"] for each in placed] == [numbers[0], numbers[1], *numbers[1:]]
