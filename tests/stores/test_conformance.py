"""Both contracts, over every store of the `store` fixture."""

from __future__ import annotations

from mainspring.testing.record_conformance import RecordStoreConformance
from mainspring.testing.timer_conformance import TimerStoreConformance


class TestTimerStore(TimerStoreConformance):
    pass


class TestRecordStore(RecordStoreConformance):
    pass
