"""What all tests share: one event loop flavour, and real servers."""

from __future__ import annotations

import pytest

# The conformance suites assert in the package: their failures shall say as much as those of the tests.
pytest.register_assert_rewrite(
    "mainspring.testing",
    *(f"telecom_cart.providers.{name}" for name in ("conformance", "basket_conformance", "order_conformance")),
)
pytest_plugins = ["tests.servers.fixtures", "tests.time_limit"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
