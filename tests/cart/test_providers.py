"""Every provider keeps the contract: the double, Salesforce and Shopify, with strong and eventual look-ups."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from telecom_cart.guarded_provider import VERBS, check
from telecom_cart.provider import Provider
from telecom_cart.providers.conformance import ProviderConformance
from telecom_cart.providers.obedient_double import DoubleShop
from telecom_cart.providers.obedient_shop import ObedientShop
from telecom_cart.providers.order_conformance import LaterOrderConformance
from telecom_cart.simulators.server import serving
from telecom_cart.simulators.simulation import Simulation
from tests.cart.processes import ROOT, environment
from tests.cart.shops import EVENTUAL, STRONG, salesforce_shop, shopify_shop
from tests.servers.process import accepts_connections, free_port

Served = tuple[Simulation, str]


@pytest.fixture(scope="module")
async def salesforce(anyio_backend: str) -> AsyncIterator[Served]:
    async with serving("salesforce") as served:
        yield served


@pytest.fixture(scope="module")
async def shopify(anyio_backend: str) -> AsyncIterator[Served]:
    async with serving("shopify") as served:
        yield served


class TestDouble(ProviderConformance):
    @pytest.fixture
    async def shop(self) -> ObedientShop:
        return DoubleShop(STRONG)


class TestDoubleWithEventualLookup(ProviderConformance):
    @pytest.fixture
    async def shop(self) -> ObedientShop:
        return DoubleShop(EVENTUAL)


class TestDoubleThatMakesOrdersLater(ProviderConformance, LaterOrderConformance):
    @pytest.fixture
    async def shop(self) -> ObedientShop:
        return DoubleShop(STRONG, is_atomic=False)


class TestSalesforce(ProviderConformance):
    @pytest.fixture
    async def shop(self, salesforce: Served) -> AsyncIterator[ObedientShop]:
        async with salesforce_shop(*salesforce, STRONG) as shop:
            yield shop


@pytest.mark.slow
class TestSalesforceWithEventualLookup(ProviderConformance):
    @pytest.fixture
    async def shop(self, salesforce: Served) -> AsyncIterator[ObedientShop]:
        async with salesforce_shop(*salesforce, EVENTUAL) as shop:
            yield shop


class TestShopify(ProviderConformance, LaterOrderConformance):
    @pytest.fixture
    async def shop(self, shopify: Served) -> AsyncIterator[ObedientShop]:
        async with shopify_shop(*shopify, STRONG) as shop:
            yield shop


@pytest.mark.slow
class TestShopifyWithEventualLookup(ProviderConformance, LaterOrderConformance):
    @pytest.fixture
    async def shop(self, shopify: Served) -> AsyncIterator[ObedientShop]:
        async with shopify_shop(*shopify, EVENTUAL) as shop:
            yield shop


@pytest.mark.slow
def test_the_suite_of_the_guide_runs_as_written(tmp_path: Path) -> None:
    (tmp_path / "test_my_provider.py").write_text(snippet("test_my_provider.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_provider.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.slow
def test_the_cart_of_the_guide_serves_as_written(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "my_cart.py").write_text(snippet("my_cart.py").replace("8710", str(port)))
    process = subprocess.Popen([sys.executable, "my_cart.py"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while not accepts_connections(port) and time.monotonic() < until:
            time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).json()["status"] == "healthy"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_class_of_the_guide_has_all_that_the_contract_asks_for() -> None:
    text = (ROOT / "apps/cart/docs/providers.md").read_text()
    found = re.search(r"## What it has\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    named: dict[str, Any] = {}
    exec(found[1], named)
    mine = named["MyProvider"]
    check(mine())
    for verb in VERBS:
        assert inspect.signature(getattr(mine, verb), eval_str=True, globals=named) == inspect.signature(
            getattr(Provider, verb), eval_str=True
        )


def snippet(name: str) -> str:
    text = (ROOT / "apps/cart/docs/providers.md").read_text()
    found = re.search(rf"```python\n(# {re.escape(name)}.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]
