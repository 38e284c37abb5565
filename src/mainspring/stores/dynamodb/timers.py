"""Reads of timers, shards and history. Those of timers and shards are strongly consistent, including the index.

A query reads at most 1 MB, and its limit counts rows before its filter; so a query goes on until it has what was
asked for or the partition ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.model import FOREVER, Attempt, Shard, Timer, TimerKey
from mainspring.store import END, PAGE_BYTES, START, DuePage, ListPage, Position, TimerFilter, look_rows
from mainspring.stores.dynamodb.client import CONTENTION_ROUNDS, Client, Item, Value, wait_out
from mainspring.stores.dynamodb.items import (
    SHARD_ROW,
    attempts_from,
    due_at_from,
    due_key,
    history_place,
    history_timer,
    instant,
    number,
    place_of,
    row_key,
    shard_from,
    text,
    timers_from,
    weight,
)
from mainspring.stores.dynamodb.schema import AGE_INDEX, DUE_INDEX
from mainspring.stores.pages import fitting, position_of, weight_of
from mainspring.stores.partial_results import answered
from mainspring.unreadable import Unreadable, readable, timer_name

Place = tuple[int, str]
"""Shard and uuid: the key of a row."""
A = TypeVar("A")
B = TypeVar("B")

_GET_BATCH: Final = 100
_WRITE_BATCH: Final = 25
_AT_ONCE: Final = 32
_LEAST_PAGE: Final = 20

_EARLIEST: Final = due_key(START)
_LATEST: Final = f"{FOREVER}#~"
"""Sorts after every row: uuids are hexadecimal."""


class Timers:
    """The reading half of the timer contract, and the pruning of history."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = client.address.timers
        self._history_table = client.address.history

    async def get(self, keys: Sequence[TimerKey]) -> list[Timer | None]:
        found = {timer.key: timer for timer in readable(await self._timers(keys))}
        return [found.get(key) for key in keys]

    async def damaged(self, keys: Sequence[TimerKey]) -> list[Unreadable | None]:
        found = {row.name: row for row in await self._timers(keys) if isinstance(row, Unreadable)}
        return [found.get(timer_name(key)) for key in keys]

    async def _timers(self, keys: Sequence[TimerKey]) -> list[Timer | Unreadable]:
        return timers_from((await self._rows({(key.shard_id, key.uuid) for key in keys})).values())

    async def shards(self, shard_ids: Sequence[int]) -> list[Shard | None]:
        places = list(dict.fromkeys((shard_id, SHARD_ROW) for shard_id in shard_ids))
        batches = [places[start : start + _GET_BATCH] for start in range(0, len(places), _GET_BATCH)]
        results: dict[int, Shard | BaseException] = {}
        for batch, found in zip(batches, await each_result(self._get_some, batches), strict=True):
            for place in batch:
                shard_id = place[0]
                if isinstance(found, BaseException):
                    results[shard_id] = found
                elif place in found[1]:
                    results[shard_id] = self._overloaded()
                else:
                    results[shard_id] = shard_from(shard_id, found[0].get(place))
        return answered([results[shard_id] for shard_id in shard_ids])

    async def _rows(self, places: set[Place]) -> dict[Place, Item]:
        ordered = list(places)
        batches = [ordered[start : start + _GET_BATCH] for start in range(0, len(ordered), _GET_BATCH)]
        rows: dict[Place, Item] = {}
        for found, missed in await each(self._get_some, batches):
            if missed:
                raise self._overloaded()
            rows |= found
        return rows

    def _overloaded(self) -> StoreUnavailable:
        return self._client.unavailable("the table is overloaded")

    async def _get_some(self, places: list[Place]) -> tuple[dict[Place, Item], set[Place]]:
        """The rows that exist, and the keys of those for which DynamoDB does not say.

        An answer has at most 16 MB and names what is left; if there is no progress, the table is overloaded.
        """
        keys = [row_key(*place) for place in places]
        items: list[Item] = []
        stalled = 0
        while keys and stalled < CONTENTION_ROUNDS:
            request = {self._table: {"Keys": keys, "ConsistentRead": True}}
            answer = await self._client.call("batch_get_item", RequestItems=request)
            found = answer["Responses"].get(self._table, [])
            items += found
            keys = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
            if keys and not found:
                await wait_out(stalled)
                stalled += 1
        return {_place_of(item): item for item in items}, {_place_of(key) for key in keys}

    # Due order

    async def load_due(self, shard_id: int, *, until: int, after: Position, limit: int) -> DuePage:
        while True:
            items = await self._due(shard_id, _behind(after), _up_to(until), limit=limit + 1)
            page = items[: min(limit, fitting(map(weight, items)))]
            timers = readable(timers_from(page))
            if len(items) == len(page):
                lowest = max(_behind(after), instant(until + 1))
                return DuePage(timers, await self._first_due(shard_id, lowest))
            if timers:
                following = due_at_from(items[len(page)])
                return DuePage(timers, following if following < FOREVER else None)
            after = place_of(page[-1])

    async def next_due(self, shard_ids: Sequence[int]) -> list[int | None]:
        """A query for each shard, because no query reads two partitions: half a read unit each."""

        async def first(shard_id: int) -> int | None:
            return await self._first_due(shard_id, _EARLIEST)

        results = await each_result(first, shard_ids)
        return [
            START.due_at if isinstance(result, BaseException) else instant
            for result, instant in zip(results, answered(results), strict=True)
        ]

    async def _first_due(self, shard_id: int, lowest: str) -> int | None:
        items = await self._due(shard_id, lowest, instant(FOREVER), limit=1, only=["due"])
        return due_at_from(items[0]) if items else None

    async def _due(
        self, shard_id: int, low: str, high: str, *, limit: int, only: list[str] | None = None
    ) -> list[Item]:
        """At most `limit` rows, or as many as make up a page, and one more if there is one."""
        items: list[Item] = []
        async for page in self._due_pages(shard_id, low, high, TimerFilter(), limit=limit, only=only):
            items += page.items
            if len(items) >= limit or fitting(map(weight, items)) < len(items):
                break
        return items

    async def _due_pages(
        self,
        shard_id: int,
        low: str,
        high: str,
        where: TimerFilter,
        *,
        limit: int,
        only: list[str] | None = None,
    ) -> AsyncIterator[_Page]:
        """The rows from `low` to `high`, inclusive, in pages, each of at most `limit` rows before the filter."""
        if low > high:
            return
        names, values, conditions = _filter(where)
        names |= {"#shard": "shard_id", "#due": "due"} | {f"#{name}": name for name in only or []}
        values |= {":shard": number(shard_id), ":low": text(low), ":high": text(high)}
        query: dict[str, object] = {
            "TableName": self._table,
            "IndexName": DUE_INDEX,
            "ConsistentRead": True,
            "KeyConditionExpression": "#shard = :shard AND #due BETWEEN :low AND :high",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "Limit": limit,
        }
        if conditions:
            query["FilterExpression"] = " AND ".join(conditions)
        if only:
            query["ProjectionExpression"] = ", ".join(f"#{name}" for name in only)
        async for page in self._pages(query):
            yield page

    async def _pages(self, query: dict[str, object]) -> AsyncIterator[_Page]:
        while True:
            answer = await self._client.call("query", **query)
            last: Item | None = answer.get("LastEvaluatedKey")
            yield _Page(answer["Items"], answer["ScannedCount"], last)
            if last is None:
                return
            query["ExclusiveStartKey"] = last

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        """A merge of the shards' pages. Each shard reads about its share first, and more only if the merge needs it. A
        shard in which enough rows were looked through in vain ends the page at the last of them."""
        distinct = list(dict.fromkeys(shards))
        if limit <= 0 or not distinct:
            return ListPage([], None)
        start, end = where.part_after(after)
        low, high = _behind(start), _LATEST if end == END else instant(end.due_at)
        look = look_rows(len(distinct))
        page = look if where.is_selective else min(limit, max(_LEAST_PAGE, 2 * limit // len(distinct)))
        cursors = [_Cursor(self._due_pages(shard_id, low, high, where, limit=page), look) for shard_id in distinct]
        await each(_Cursor.fill, cursors)
        merge = [(cursor.head, place) for place, cursor in enumerate(cursors) if cursor.head is not None]
        heapify(merge)
        timers: list[Timer] = []
        size = 0
        while merge:
            head, place = merge[0]
            cursor = cursors[place]
            if not cursor.items:
                return ListPage(timers, head)
            if len(timers) == limit or size > PAGE_BYTES:
                return ListPage(timers, position_of(timers[-1]))
            for timer in readable(timers_from([cursor.items.popleft()])):
                timers.append(timer)
                size += weight_of(timer)
            await cursor.fill()
            if cursor.head is not None:
                heapreplace(merge, (cursor.head, place))
            else:
                heappop(merge)
        return ListPage(timers, None)

    # History

    async def history(self, key: TimerKey, *, before: tuple[int, int] | None, limit: int) -> list[Attempt]:
        if limit < 1:
            return []
        condition, values = "#timer = :timer", {":timer": text(history_timer(key))}
        names = {"#timer": "timer"}
        if before is not None:
            condition += " AND #entry < :before"
            names["#entry"] = "entry"
            values[":before"] = text(history_place(*before))
        query: dict[str, object] = {
            "TableName": self._history_table,
            "ConsistentRead": True,
            "ScanIndexForward": False,
            "Limit": limit,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        attempts: list[Attempt] = []
        async for page in self._pages(query):
            attempts += readable(attempts_from(key, page.items))
            if len(attempts) >= limit:
                break
        return attempts[:limit]

    async def prune_history(self, shard_id: int, *, older_than: int, limit: int) -> int:
        """The order by age is a global index, which may lag: an entry written a moment ago is found the next time."""
        query: dict[str, object] = {
            "TableName": self._history_table,
            "IndexName": AGE_INDEX,
            "Limit": limit,
            "KeyConditionExpression": "#shard = :shard AND #entry < :older",
            "ExpressionAttributeNames": {"#shard": "shard_id", "#entry": "entry"},
            "ExpressionAttributeValues": {":shard": number(shard_id), ":older": text(instant(older_than))},
        }
        keys: list[Item] = []
        async for page in self._pages(query):
            keys += [{"timer": item["timer"], "entry": item["entry"]} for item in page.items]
            if len(keys) >= limit:
                break
        keys = keys[:limit]
        await each(
            self._delete_batch, [keys[start : start + _WRITE_BATCH] for start in range(0, len(keys), _WRITE_BATCH)]
        )
        return len(keys)

    async def _delete_batch(self, keys: list[Item]) -> None:
        requests: list[object] = [{"DeleteRequest": {"Key": key}} for key in keys]
        for round_ in range(CONTENTION_ROUNDS):
            answer = await self._client.call("batch_write_item", RequestItems={self._history_table: requests})
            requests = answer.get("UnprocessedItems", {}).get(self._history_table, [])
            if not requests:
                return
            await wait_out(round_)
        raise self._client.unavailable("the history table is overloaded")


class _Page(NamedTuple):
    """The items of one answer, how many were looked at for it, and the key of the last of those; None at the end."""

    items: list[Item]
    looked: int
    last: Item | None


class _Cursor:
    """The rows of one shard that a merge has not taken yet. At least `look` rows are looked through in vain before it
    stops."""

    def __init__(self, pages: AsyncIterator[_Page], look: int) -> None:
        self.items: deque[Item] = deque()
        self._pages = pages
        self._look = look
        self._last: Position | None = START

    async def fill(self) -> None:
        """Read on until there is a row, enough rows were looked at, or the shard has no more."""
        while not self.items and self._last is not None and self._look > 0:
            page = await anext(self._pages, _NO_PAGE)
            self.items.extend(page.items)
            self._look -= page.looked - len(page.items)
            self._last = None if page.last is None else place_of(page.last)

    @property
    def head(self) -> Position | None:
        """The position of its first row, or the last one that was looked at; None at the end of the shard."""
        return place_of(self.items[0]) if self.items else self._last


_NO_PAGE: Final = _Page([], 0, None)
"""After the last one, and of an empty part of the due order."""


def _behind(after: Position) -> str:
    """The first text that follows a position."""
    return f"{due_key(after)}\0"


def _up_to(until: int) -> str:
    return _LATEST if until >= FOREVER else instant(until + 1)


def _filter(where: TimerFilter) -> tuple[dict[str, str], dict[str, Value], list[str]]:
    """Names, values and conditions for what the key does not decide."""
    names: dict[str, str] = {}
    values: dict[str, Value] = {}
    conditions: list[str] = []
    if where.states:
        names["#state"] = "state"
        values |= {f":state{n}": text(state.value) for n, state in enumerate(where.states)}
        conditions.append(f"#state IN ({', '.join(f':state{n}' for n in range(len(where.states)))})")
    if where.id_prefix:
        names["#id"] = "timer_id"
        values[":prefix"] = text(where.id_prefix)
        conditions.append("begins_with(#id, :prefix)")
    for n, (name, value) in enumerate(where.labels):
        names |= {"#labels": "labels", f"#label{n}": name}
        values[f":label{n}"] = text(value)
        conditions.append(f"#labels.#label{n} = :label{n}")
    return names, values, conditions


def _place_of(item: Item) -> Place:
    return int(item["shard_id"]["N"]), item["uuid"]["S"]


async def each_result(call: Callable[[A], Awaitable[B]], values: Iterable[A]) -> list[B | BaseException]:
    """The answers in order, or the errors; at most `_AT_ONCE` calls are under way."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(value: A) -> B:
        async with room:
            return await call(value)

    return await asyncio.gather(*map(one, values), return_exceptions=True)


async def each(call: Callable[[A], Awaitable[B]], values: Iterable[A]) -> list[B]:
    """The answers in order; at most `_AT_ONCE` calls are under way. The first error ends the others."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(value: A) -> B:
        async with room:
            return await call(value)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(value)) for value in values]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
