"""The platform's process is gone for a minute of real time: carts go on, and nothing is lost or ordered."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cart.processes import environment, running
from tests.cart.served_cart import PHONE
from tests.servers.process import free_port

pytestmark = pytest.mark.slow

OUTAGE_SECONDS = 60
USERS = ("ann", "bob", "cleo")


@contextlib.contextmanager
def platform(port: int, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "telecom_cart.simulators", "salesforce", "--port", str(port)]
    with (folder / "platform").open("a") as log:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(port), 30, "the platform")
        yield
    finally:
        process.kill()
        process.wait()


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"Expected {what} within {seconds} s"
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/_sim/state", trust_env=False).status_code == 200
    return False


def test_a_minute_without_the_platform_costs_no_cart_anything_and_is_made_up_for_afterwards(tmp_path: Path) -> None:
    simulator, port = free_port(), free_port()
    arguments = ["serve", "--store", "sqlite:///cart.db", "--provider", "salesforce", "--simulated"]
    arguments += ["--provider-url", f"http://127.0.0.1:{simulator}", "--port", str(port)]
    carts = f"http://127.0.0.1:{port}/v1/carts"
    pieces = 0
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(httpx.Client(trust_env=False, timeout=30))
        with platform(simulator, tmp_path):
            stack.enter_context(running(arguments, tmp_path, until=f"http://127.0.0.1:{port}"))
            for user in USERS:
                client.post(f"{carts}/{user}/items", json=PHONE).raise_for_status()
        over = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < over:
            pieces += 1
            for user in USERS:
                added = client.post(f"{carts}/{user}/items", json=PHONE)
                assert added.status_code == 200, added.text
            refused = client.post(f"{carts}/ann/checkout")
            assert (refused.status_code, refused.json()["retryable"]) == (503, True), refused.text
            time.sleep(1)
        with platform(simulator, tmp_path):

            def all_synchronised() -> bool:
                return all(client.get(f"{carts}/{user}").json()["syncStatus"] == "synced" for user in USERS)

            wait_until(all_synchronised, 120, "all carts to be synchronised")
            ledger = client.get(f"http://127.0.0.1:{simulator}/_sim/ledger").json()
            assert ledger["orders"] == []
            for user in USERS:
                placed = client.post(f"{carts}/{user}/checkout")
                assert placed.status_code == 200, placed.text
                assert [item["quantity"] for item in placed.json()["items"]] == [1 + pieces]
            ledger = client.get(f"http://127.0.0.1:{simulator}/_sim/ledger").json()
            assert len(ledger["orders"]) == len(USERS)
