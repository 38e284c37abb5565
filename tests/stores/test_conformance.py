"""Both contracts, over every store that keeps them."""

from __future__ import annotations

import pytest

from mainspring.testing.record_conformance import RecordStoreConformance
from mainspring.testing.timer_conformance import TimerStoreConformance
from tests.stores.conftest import RECORD_STORES, TIMER_STORES


@pytest.mark.parametrize("fresh_url", TIMER_STORES, indirect=True)
class TestTimerStore(TimerStoreConformance):
    pass


@pytest.mark.parametrize("fresh_url", RECORD_STORES, indirect=True)
class TestRecordStore(RecordStoreConformance):
    pass
