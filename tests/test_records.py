"""Documents of a program, in the store of its timers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import Conflict, InvalidInput
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated


@dataclass(frozen=True)
class Basket:
    owner: str
    items: tuple[str, ...] = ()


async def test_a_document_outlives_the_program_with_its_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with Mainspring(url) as ms:
        baskets = ms.records("baskets", Basket)
        assert await baskets.get("ann") is None
        put = await baskets.put("ann", Basket("ann", ("phone",)), expect=0)
    async with Mainspring(url) as ms:
        assert await ms.records("baskets", Basket).get("ann") == put
        assert await ms.records("others", Basket).get("ann") is None


async def test_who_has_not_seen_the_last_version_overwrites_nothing() -> None:
    async with Mainspring("memory://") as ms:
        baskets = ms.records("baskets", Basket)
        first = await baskets.put("ann", Basket("ann"), expect=0)
        second = await baskets.put("ann", replace(first.value, items=("a",)), expect=first.version)
        for expect in (0, first.version):
            with pytest.raises(Conflict, match="'ann'"):
                await baskets.put("ann", Basket("eve"), expect=expect)
        assert not await baskets.delete("ann", expect=first.version)
        assert await baskets.get("ann") == second


async def test_a_version_does_not_come_back_with_the_next_document_of_a_key() -> None:
    async with Mainspring("memory://") as ms:
        baskets = ms.records("baskets", Basket)
        first = await baskets.put("ann", Basket("ann"))
        assert await baskets.delete("ann", expect=first.version)
        again = await baskets.put("ann", Basket("ann"))
        assert first.version != again.version
        with pytest.raises(Conflict):
            await baskets.put("ann", Basket("late"), expect=first.version)


async def test_of_many_who_change_a_document_at_once_everybody_is_counted() -> None:
    async with Mainspring("memory://") as ms:
        baskets = ms.records("baskets", Basket)
        await baskets.put("ann", Basket("ann"))

        async def add(item: str) -> None:
            while True:
                found = await baskets.get("ann")
                assert found is not None
                try:
                    await baskets.put(
                        "ann", replace(found.value, items=(*found.value.items, item)), expect=found.version
                    )
                except Conflict:
                    continue
                return

        await asyncio.gather(*(add(str(number)) for number in range(20)))
        found = await baskets.get("ann")
        assert found is not None
        assert sorted(found.value.items, key=int) == [str(number) for number in range(20)]


async def test_a_scan_gives_all_of_a_collection_in_the_order_of_keys() -> None:
    async with Mainspring("memory://") as ms:
        baskets = ms.records("baskets", Basket)
        for number in range(230):
            await baskets.put(f"{number:03}", Basket(str(number)))
        assert [int(found.key) async for found in baskets.scan()] == list(range(230))
        assert [int(found.key) async for found in baskets.scan(after="227")] == [228, 229]


def test_what_expires_is_gone() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with Mainspring("memory://", clock=SimulatedClock(loop)) as ms:
            baskets = ms.records("baskets", Basket)
            await baskets.put("ann", Basket("ann"), expires_in=60)
            await asyncio.sleep(59)
            assert await baskets.get("ann") is not None
            await asyncio.sleep(2)
            assert await baskets.get("ann") is None
            await baskets.put("ann", Basket("ann"), expect=0)

    run_simulated(main)


async def test_what_cannot_be_read_is_refused_by_name_and_passed_over_by_a_scan() -> None:
    async with Mainspring("memory://") as ms:
        await ms.records("baskets", int).put("broken", 7)
        baskets = ms.records("baskets", Basket)
        whole = await baskets.put("whole", Basket("ann"))
        with pytest.raises(Conflict, match=r"program:baskets/broken cannot be read.*doctor"):
            await baskets.get("broken")
        assert [found async for found in baskets.scan()] == [whole]
        await baskets.put("broken", Basket("mended"))
        assert len([found async for found in baskets.scan()]) == 2


async def test_what_could_not_be_read_again_is_not_written() -> None:
    async with Mainspring("memory://") as ms:
        with pytest.raises(InvalidInput, match="a type that can be read from JSON, got 5"):
            ms.records("x", 5)  # type: ignore[arg-type]
        baskets = ms.records("baskets", Basket)
        with pytest.raises(InvalidInput, match="a value of the collection's type"):
            await baskets.put("ann", {"items": 3})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="more than 0 seconds"):
            await baskets.put("ann", Basket("ann"), expires_in=-1)
        assert await baskets.get("ann") is None


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "a\u202eb"])
async def test_keys_and_names_are_checked(key: str) -> None:
    async with Mainspring("memory://") as ms:
        with pytest.raises(InvalidInput, match="Expected a name of a collection of 1 to 64"):
            ms.records(key, Basket)
        baskets = ms.records("baskets", Basket)
        for ask in (baskets.get(key), baskets.put(key, Basket("a")), baskets.delete(key, expect=1)):
            with pytest.raises(InvalidInput, match="Expected a key of 1 to 255"):
                await ask
        with pytest.raises(InvalidInput, match="Expected a value, got None"):
            await baskets.put("ann", None)  # type: ignore[arg-type]
