"""The fixture `mainspring` for the tests of programs that use Mainspring: see docs/guides/testing.md.

pytest loads this wherever the package is installed, so it loads nothing itself until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainspring.testing.emulated_thread import EmulatedThread


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "mainspring(at=..., **settings): when the clock of the fixture `mainspring` starts, and its settings"
    )


@pytest.fixture
def mainspring(request: pytest.FixtureRequest) -> Iterator[EmulatedThread]:
    """A whole Mainspring on a store in memory, in which time stands still until the test moves it."""
    from mainspring.testing.emulated_thread import EmulatedThread  # noqa: PLC0415  (heavy)

    marker = request.node.get_closest_marker("mainspring")
    if marker is not None and marker.args:
        example = '@pytest.mark.mainspring(at="2026-12-24T17:00:00Z")'
        raise TypeError(f"Expected arguments with names, as in {example}, got {marker.args!r:.100}")
    settings = dict(marker.kwargs) if marker is not None else {}
    with EmulatedThread(**settings) as emulated:
        yield emulated
