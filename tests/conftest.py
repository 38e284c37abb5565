"""What all tests share: one event loop flavour, real servers, and somebody to call."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

# The conformance suites assert in the package: their failures shall say as much as those of the tests.
pytest.register_assert_rewrite(
    "mainspring.testing",
    *(f"telecom_cart.providers.{name}" for name in ("conformance", "basket_conformance", "order_conformance")),
)
pytest_plugins = ["tests.servers.fixtures", "tests.support.target", "tests.support.time_limit"]

_SLOW_AS_A_WHOLE: Final = "pytestmark = pytest.mark.slow"
_ALONE: Final = tuple(
    Path(__file__).parent / name
    for name in ("cluster", "crashes", "faults", "processes", "testing/attacks", "testing/fuzzing", "testing/torture")
)


def pytest_configure() -> None:
    """Who starts the tests in the background of a shell has them ignore SIGINT, and all processes that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Clusters under load need both cores."""
    for item in items:
        if any(item.path.is_relative_to(place) for place in _ALONE):
            item.add_marker(pytest.mark.alone)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that are slow as a whole need not be imported for the quick tests: some draw their cases then."""
    if config.getoption("markexpr").startswith("not slow") and collection_path.match("test_*.py"):
        return _SLOW_AS_A_WHOLE in collection_path.read_text().splitlines() or None
    return None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
