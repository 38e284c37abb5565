"""Random sequences of calls on every store, against a plain model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from mainspring.clock import SystemClock
from mainspring.store import Store
from mainspring.stores import store_from_url
from mainspring.testing.store_machines import BOUNDED, OpenStore, record_machine, timer_machine
from tests.stores.conftest import RECORD_STORES, TIMER_STORES


@pytest.fixture
def open_store(fresh_url: Callable[[], str]) -> OpenStore:
    async def open_store() -> Store:
        store = store_from_url(fresh_url(), clock=SystemClock())
        await store.open()
        return store

    return open_store


@pytest.fixture
def bounds(request: pytest.FixtureRequest) -> settings:
    """Every example needs a store of its own, which takes longer on a server."""
    return settings(BOUNDED, max_examples=8) if request.node.get_closest_marker("server") else BOUNDED


@pytest.mark.parametrize("fresh_url", TIMER_STORES, indirect=True)
@pytest.mark.slow
def test_timers_follow_the_model(open_store: OpenStore, bounds: settings) -> None:
    run_state_machine_as_test(timer_machine(open_store), settings=bounds)


@pytest.mark.parametrize("fresh_url", RECORD_STORES, indirect=True)
@pytest.mark.slow
def test_records_follow_the_model(open_store: OpenStore, bounds: settings) -> None:
    run_state_machine_as_test(record_machine(open_store), settings=bounds)
