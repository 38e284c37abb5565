"""What every `TimerStore` must do, sentence by sentence of the contract. Bind it with one fixture:

    class TestMyStore(TimerStoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]: ...   # empty and open

The names of the tests are the table of contents; the classes they come from are its chapters.
"""

from __future__ import annotations

from mainspring.store import Store
from mainspring.testing.ownership_conformance import AttemptConformance, HistoryConformance, ShardConformance
from mainspring.testing.timer_rows_conformance import (
    DueConformance,
    LargePagesConformance,
    ListConformance,
    WriteConformance,
)


class TimerStoreConformance(
    WriteConformance,
    ListConformance,
    DueConformance,
    LargePagesConformance,
    ShardConformance,
    AttemptConformance,
    HistoryConformance,
):
    """The whole contract."""

    async def test_the_time_is_reported_in_milliseconds(self, store: Store) -> None:
        first = await store.time()
        assert first > 1_000_000_000_000
        assert await store.time() >= first - 1_000
