"""Group commit, as all stores have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.stores.committer import PATIENCE_SECONDS, PENDING_LIMIT, Admission, Committer, submit, together
from mainspring.stores.grouping import GROUP_BYTES, LARGE_BYTES, Items, Room

ROOM = Room(items=1_000)


class Groups:
    """Doubles numbers, remembers the groups, and goes on only when told to."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.may_go_on = asyncio.Event()

    async def write(self, numbers: list[int]) -> list[int]:
        self.seen.append(numbers)
        await self.may_go_on.wait()
        return [2 * number for number in numbers]


def committer(
    write: Callable[[list[int]], Awaitable[list[int]]], room: Room = ROOM, *, width: int = 1
) -> Committer[Items[int, int]]:
    return Committer(together(write), room=room, width=width)


def ask(to: Committer[Items[int, int]], *numbers: int, size: int = 0) -> asyncio.Task[list[int]]:
    return asyncio.create_task(submit(to, numbers, size=size))


async def let_others_go_on() -> None:
    """Everything that can go on does."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_arrives_while_a_group_is_under_way_becomes_the_next_one() -> None:
    groups = Groups()
    one = committer(groups.write)
    first = [ask(one, 1), ask(one, 2, 3)]
    await let_others_go_on()
    behind = [ask(one, 4), ask(one, 5)]
    await let_others_go_on()
    groups.may_go_on.set()
    assert await asyncio.gather(*first, *behind) == [[2], [4, 6], [8], [10]]
    assert groups.seen == [[1, 2, 3], [4, 5]]
    await one.close()


async def test_a_group_is_bounded_in_items_and_whatever_is_larger_goes_alone() -> None:
    groups = Groups()
    groups.may_go_on.set()
    one = committer(groups.write, Room(items=3))
    await asyncio.gather(ask(one, 1, 2), ask(one, 3), ask(one, 4, 5), ask(one, 6, 7, 8, 9), ask(one, 10))
    assert groups.seen == [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
    await one.close()


async def test_what_is_written_at_once_is_bounded_in_bytes() -> None:
    groups = Groups()
    groups.may_go_on.set()
    one = committer(groups.write)
    await asyncio.gather(*(ask(one, number, size=GROUP_BYTES // 2) for number in range(9)), ask(one, 9, size=10**9))
    assert groups.seen == [[0, 1], [2, 3], [4, 5], [6, 7], [8], [9]]
    await one.close()


async def test_as_many_groups_are_under_way_as_the_width_allows() -> None:
    groups = Groups()
    one = committer(groups.write, Room(items=1), width=2)
    calls = [ask(one, number) for number in range(5)]
    await let_others_go_on()
    assert groups.seen == [[0], [1]]
    groups.may_go_on.set()
    assert await asyncio.gather(*calls) == [[0], [2], [4], [6], [8]]
    calls = [ask(one, number) for number in range(5)]
    groups.may_go_on.clear()
    await let_others_go_on()
    assert len(groups.seen) == 7
    groups.may_go_on.set()
    await asyncio.gather(*calls)
    await one.close()


async def test_groups_that_are_held_up_do_not_hold_up_the_next_ones_until_they_are_too_many() -> None:
    groups = Groups()
    one = Committer(together(groups.write), room=Room(items=1), beside=2)
    calls = [ask(one, number) for number in range(6)]
    await let_others_go_on()
    assert groups.seen == [[0]]
    await asyncio.sleep(PATIENCE_SECONDS * 4)
    assert groups.seen == [[0], [1], [2]]
    groups.may_go_on.set()
    assert await asyncio.gather(*calls) == [[0], [2], [4], [6], [8], [10]]
    assert await ask(one, 6) == [12]
    await one.close()


async def test_too_much_waiting_work_is_refused_at_once() -> None:
    groups = Groups()
    one = committer(groups.write)
    first = ask(one, *range(PENDING_LIMIT - 1))
    await let_others_go_on()
    with pytest.raises(StoreUnavailable, match=str(PENDING_LIMIT)):
        await ask(one, 1, 2)
    groups.may_go_on.set()
    await first
    assert await ask(one, 1, 2) == [2, 4]
    await one.close()


async def test_committers_with_one_admission_count_what_waits_together() -> None:
    groups, admission = Groups(), Admission()
    one, other = (Committer(together(groups.write), room=Room(items=1), admission=admission) for _ in range(2))
    calls = [ask(one, *range(PENDING_LIMIT // 2)), ask(other, *range(PENDING_LIMIT // 2))]
    await let_others_go_on()
    with pytest.raises(StoreUnavailable, match=str(PENDING_LIMIT)):
        await ask(other, 1)
    groups.may_go_on.set()
    await asyncio.gather(*calls)
    await one.close()
    await other.close()


@pytest.mark.parametrize("raised", [StoreUnavailable("gone"), ValueError("gone")])
async def test_an_error_of_a_group_reaches_every_caller_as_an_error_of_its_own(raised: Exception) -> None:
    async def write(_: list[int]) -> list[int]:
        raise raised

    one = committer(write)
    errors = await asyncio.gather(ask(one, 1), ask(one, 2), return_exceptions=True)
    assert all(isinstance(error, StoreUnavailable) and "gone" in error.detail for error in errors)
    assert len({id(error) for error in errors}) == 2
    assert [error.__cause__ for error in errors if isinstance(error, Exception)] == [raised, raised]
    await one.close()


async def test_a_caller_that_is_cancelled_takes_nobody_with_it_and_its_items_are_written() -> None:
    groups = Groups()
    one = committer(groups.write)
    under_way, with_it = ask(one, 1), ask(one, 2)
    await let_others_go_on()
    waiting, behind = ask(one, 3), ask(one, 4)
    await let_others_go_on()
    under_way.cancel()
    waiting.cancel()
    groups.may_go_on.set()
    assert [await with_it, await behind] == [[4], [8]]
    assert groups.seen == [[1, 2], [3, 4]]
    await one.close()


async def test_work_that_is_cancelled_leaves_no_caller_waiting() -> None:
    async def write(_: list[int]) -> list[int]:
        raise asyncio.CancelledError

    one = committer(write)
    for _ in range(2):
        async with asyncio.timeout(5):
            assert isinstance((await asyncio.gather(ask(one, 1), return_exceptions=True))[0], asyncio.CancelledError)
    await one.close()


async def test_close_finishes_what_was_admitted_and_refuses_more() -> None:
    groups = Groups()
    one = committer(groups.write, Room(items=1), width=2)
    calls = [ask(one, number) for number in range(5)]
    await let_others_go_on()
    closing = asyncio.create_task(one.close())
    await let_others_go_on()
    with pytest.raises(StoreUnavailable, match="closed"):
        await ask(one, 1)
    assert not closing.done()
    groups.may_go_on.set()
    await closing
    assert [call.result() for call in calls] == [[0], [2], [4], [6], [8]]


@pytest.mark.parametrize(("in_order", "groups"), [(True, [[0, 1], [2]]), (False, [[0, 2], [1]])])
async def test_what_is_large_steps_aside_unless_the_order_matters(in_order: bool, groups: list[list[int]]) -> None:
    seen = Groups()
    seen.may_go_on.set()
    one = committer(seen.write, Room(items=2, in_order=in_order))
    await asyncio.gather(ask(one, 0), ask(one, 1, size=LARGE_BYTES + 1), ask(one, 2))
    assert seen.seen == groups
    await one.close()
