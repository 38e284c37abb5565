"""A row of which nobody knows what to make concerns nobody else, and is not lost itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mainspring import unreadable
from mainspring.kernel.carrier import Lane
from mainspring.kernel.lanes import place_before
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Timer
from mainspring.store import Position, Put, Verdict
from mainspring.testing.timer_samples import timer as sample
from tests.support.engine_cluster import NAMESPACE, Cluster, LedgerCarrier, done, simulate

UUIDS = ("not-hexadecimal", "ABCDEF" + "0" * 26, " 1", "-1", "0x10", "é€😀", "0" * 32, "f" * 32, "0")


@pytest.fixture(autouse=True)
def nothing_set_aside() -> Iterator[None]:
    unreadable.forget()
    yield
    unreadable.forget()


@pytest.mark.parametrize("uuid", UUIDS)
def test_a_place_before_a_row_is_before_it_whatever_its_uuid_is(uuid: str) -> None:
    timer = sample("t", uuid=uuid, due_at=7)
    place = place_before(timer)
    assert place < Position(7, uuid)
    assert place > Position(6, "\U0010ffff" * 64)


@pytest.mark.parametrize("uuid", UUIDS)
def test_a_row_whose_uuid_is_no_number_keeps_no_other_row_of_its_shard_from_being_read(uuid: str) -> None:
    """It finds no room in the window, and so is left in the store before the others are looked at."""

    async def scenario(cluster: Cluster) -> None:
        cluster.lane_limit = 1
        cluster.behave = lambda timer: (20.0 if timer.detail.callback_url == "http://slow" else 0.01, done())
        names = [name for name in map(str, range(1000)) if NAMESPACE.key_of(name).shard_id == 0]
        for name in names[:20]:
            await cluster.create(name, url="http://slow")
        row = await cluster.create(names[20], url="http://slow", in_ms=1)
        odd = replace(row, uuid=uuid, timer_id="odd")
        assert await cluster.store.write([Put(odd, 0)]) == [Verdict.APPLIED]
        for name in names[21:41]:
            await cluster.create(name, url="http://good", in_ms=2)
        await asyncio.sleep(1)
        await cluster.join("a")
        await asyncio.sleep(15)
        assert {len(cluster.ledger.of(name)) for name in names[21:41]} == {1}
        await asyncio.sleep(600)
        assert len(cluster.ledger.of("odd")) == 1
        assert await cluster.rows() == []
        assert unreadable.known() == []

    simulate(scenario, EngineSettings(window_limit=16))


def test_an_unforeseen_error_about_one_row_that_is_due_concerns_no_other_and_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = LedgerCarrier.lane
    is_broken = True

    def lane(self: LedgerCarrier, timer: Timer) -> Lane:
        if timer.timer_id == "odd" and is_broken:
            raise KeyError("unforeseen")
        return good(self, timer)

    monkeypatch.setattr(LedgerCarrier, "lane", lane)

    async def scenario(cluster: Cluster) -> None:
        nonlocal is_broken
        names = [f"t{number}" for number in range(100)]
        odd = await cluster.create("odd")
        for name in names:
            await cluster.create(name, in_ms=1)
        await asyncio.sleep(1)
        await cluster.join("a")
        await asyncio.sleep(1)
        assert {len(cluster.ledger.of(name)) for name in names} == {1}
        [found] = unreadable.known()
        assert (found.kind, found.name) == ("timer", unreadable.timer_name(odd.key))
        assert "KeyError" in found.reason
        is_broken = False
        await asyncio.sleep(2)
        assert len(cluster.ledger.of("odd")) == 1
        assert await cluster.rows() == []

    simulate(scenario)
