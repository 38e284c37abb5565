"""Conditional writes of single rows, in batches: what users write, and the claims of shards.

DynamoDB's plain batches have no conditions. A batch of PartiQL statements has: each of its at most 25 statements
is a write of one row with a condition of its own, and succeeds or fails by itself. Statements of callers that
arrive while enough batches are under way share the next one, which costs a tenth of the work of asking one by one.
Only a removal goes by itself, as a conditional `DeleteItem`: PartiQL calls it a success when there is no such row.

A batch never names a row twice. Statements of one call that do are run in order, one wave after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from mainspring.errors import TooLarge
from mainspring.model import Shard
from mainspring.store import Put, Remove, Verdict
from mainspring.stores.dynamodb.client import (
    CONTENTION_ROUNDS,
    Answer,
    Client,
    ConditionFailed,
    Contended,
    Invalid,
    Item,
    Value,
    too_large,
    wait_out,
)
from mainspring.stores.dynamodb.items import (
    REQUEST_WEIGHT,
    SHARD_ROW,
    fits,
    number,
    row_key,
    text,
    timer_item,
    weight,
)
from mainspring.stores.partly import verdicts
from mainspring.stores.sizes import OUTCOME_BYTES, if_it_can_be_written

_BATCH: Final = 25
_PARALLEL: Final = 16
_WAITING_LIMIT: Final = 100_000

_CONDITION_FAILED: Final = frozenset({"ConditionalCheckFailed", "DuplicateItem"})
_CONTENDED: Final = frozenset({"TransactionConflict"})
_NO_ROOM: Final = frozenset({"ItemCollectionSizeLimitExceeded"})
"""The shard is full."""


class Statement(Struct, frozen=True):
    """A write of the row `(shard_id, uuid)` of the timers table."""

    row: tuple[int, str]
    partiql: str
    parameters: list[Value]
    weight: int


class Removal(Struct, frozen=True):
    """Removes the row `(shard_id, uuid)` if it has version `expect`."""

    row: tuple[int, str]
    expect: int
    weight: int = REQUEST_WEIGHT


SingleWrite = Statement | Removal


class _Waiting(Struct, eq=False):
    write: SingleWrite
    verdict: asyncio.Future[Verdict]


class Statements:
    """Runs statements; at most `_PARALLEL` batches are under way at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[_Waiting] = deque()
        self._batches: set[asyncio.Task[None]] = set()

    async def run(self, writes: Sequence[SingleWrite | None]) -> list[Verdict]:
        """A verdict for each. A caller that goes away does not take its batch with it. None is what has no room."""
        if len(self._waiting) + len(writes) > _WAITING_LIMIT:
            raise self._client.unavailable(f"more than {_WAITING_LIMIT} writes are waiting")
        results: list[Verdict | BaseException] = [Verdict.REFUSED] * len(writes)
        for wave in _waves(writes):
            waiting = [self._enqueue(write) for _, write in wave]
            self._start_batches()
            # All of them end before an error is raised, so that nothing of this call is under way any more.
            for (index, _), result in zip(wave, await asyncio.gather(*waiting, return_exceptions=True), strict=True):
                results[index] = result
        return verdicts(results)

    async def close(self) -> None:
        while self._batches:
            await asyncio.wait(self._batches)

    def _enqueue(self, write: SingleWrite) -> asyncio.Future[Verdict]:
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(write, verdict))
        return verdict

    def _start_batches(self) -> None:
        while self._waiting and len(self._batches) < _PARALLEL:
            task = asyncio.create_task(self._run(self._next_batch()))
            self._batches.add(task)
            task.add_done_callback(self._batch_ended)

    def _batch_ended(self, task: asyncio.Task[None]) -> None:
        self._batches.discard(task)
        self._start_batches()

    def _next_batch(self) -> list[_Waiting]:
        """As many as fit, and at least one. A removal weighs as much as a request, so it is alone."""
        batch: dict[tuple[int, str], _Waiting] = {}
        room = REQUEST_WEIGHT
        while self._waiting and len(batch) < _BATCH:
            write = self._waiting[0].write
            if batch and (write.weight > room or write.row in batch):
                break
            batch[write.row] = self._waiting.popleft()
            room -= write.weight
        return list(batch.values())

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            for round_ in range(CONTENTION_ROUNDS):
                batch = self._settle(batch, await self._ask(batch))
                if not batch:
                    return
                await wait_out(round_)
            raise self._client.unavailable("other transactions on the same rows do not end")
        except (Invalid, TooLarge) as error:
            if len(batch) == 1:
                _tell(batch[0], Verdict.REFUSED if isinstance(error, TooLarge) else error)
            else:  # one of them is to blame
                for waiting in batch:
                    await self._run([waiting])
        except Exception as error:  # noqa: BLE001  (every caller of the batch is told)
            for waiting in batch:
                _tell(waiting, error)

    async def _ask(self, batch: list[_Waiting]) -> list[Answer]:
        statements = []
        for waiting in batch:
            if isinstance(waiting.write, Removal):
                return [await self._remove(waiting.write)]
            statements.append({"Statement": waiting.write.partiql, "Parameters": waiting.write.parameters})
        answer = await self._client.call("batch_execute_statement", Statements=statements)
        responses: list[Answer] = answer["Responses"]
        return responses

    async def _remove(self, removal: Removal) -> Answer:
        try:
            return await self._client.call(
                "delete_item",
                TableName=self._client.address.timers,
                Key=row_key(*removal.row),
                ConditionExpression="#version = :expect",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues={":expect": number(removal.expect)},
            )
        except ConditionFailed:
            return {"Error": {"Code": "ConditionalCheckFailed"}}
        except Contended:
            return {"Error": {"Code": "TransactionConflict"}}

    def _settle(self, batch: list[_Waiting], responses: list[Answer]) -> list[_Waiting]:
        """Tell the callers; what is left was refused because of an open transaction."""
        contended = []
        for waiting, response in zip(batch, responses, strict=True):
            error = response.get("Error")
            if error is None:
                _tell(waiting, Verdict.APPLIED)
            elif error["Code"] in _CONDITION_FAILED:
                _tell(waiting, Verdict.STALE)
            elif error["Code"] in _CONTENDED:
                contended.append(waiting)
            elif error["Code"] in _NO_ROOM or too_large(error.get("Message", "")):
                _tell(waiting, Verdict.REFUSED)
            else:
                _tell(waiting, self._client.unavailable(f"{error['Code']}: {error.get('Message', '')}"))
        return contended


def _tell(waiting: _Waiting, result: Verdict | Exception) -> None:
    if waiting.verdict.done():
        return
    if isinstance(result, Exception):
        waiting.verdict.set_exception(result)
    else:
        waiting.verdict.set_result(result)


def _waves(writes: Sequence[SingleWrite | None]) -> Iterable[list[tuple[int, SingleWrite]]]:
    """Writes with their positions, such that no wave names a row twice and each row's writes stay in order."""
    waves: list[list[tuple[int, SingleWrite]]] = []
    seen: dict[tuple[int, str], int] = {}
    for index, write in enumerate(writes):
        if write is None:
            continue
        wave = seen.get(write.row, 0)
        seen[write.row] = wave + 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append((index, write))
    return waves


# What is written


def change(table: str, item: Put | Remove) -> SingleWrite | None:
    """None if DynamoDB cannot hold the row with the outcome that its attempts will leave in it."""
    return if_it_can_be_written(_change, table, item)


def _change(table: str, item: Put | Remove) -> SingleWrite | None:
    if isinstance(item, Remove):
        return Removal((item.key.shard_id, item.key.uuid), item.expect)
    row = timer_item(item)
    if not fits(row, besides=OUTCOME_BYTES):
        return None
    return _insert(table, row) if item.expect == 0 else _update(table, row, {"version": number(item.expect)})


def claim(table: str, shard: Shard) -> Statement:
    row = _shard_row(shard, version=shard.version + 1, owner=shard.owner)
    return _insert(table, row) if shard.version == 0 else _update(table, row, {"version": number(shard.version)})


def release(table: str, shard: Shard) -> Statement:
    row = _shard_row(shard, version=shard.version, owner="")
    return _update(table, row, {"version": number(shard.version), "owner": text(shard.owner)})


def _shard_row(shard: Shard, *, version: int, owner: str) -> Item:
    return {**row_key(shard.shard_id, SHARD_ROW), "version": number(version), "owner": text(owner)}


def _insert(table: str, item: Item) -> Statement:
    """Fails when there is a row with this key."""
    fields = ", ".join(f"'{name}': ?" for name in item)
    return Statement(_row(item), f'INSERT INTO "{table}" VALUE {{{fields}}}', list(item.values()), weight(item))


def _update(table: str, item: Item, expected: Item) -> Statement:
    """Sets every attribute that a row of its kind has, so nothing of the old row remains."""
    key = {name: item[name] for name in ("shard_id", "uuid")}
    changed = {name: value for name, value in item.items() if name not in key}
    settings = " ".join(f'SET "{name}" = ?' for name in changed)
    partiql = f'UPDATE "{table}" {settings} WHERE {_conditions({**key, **expected})}'
    return Statement(_row(item), partiql, [*changed.values(), *key.values(), *expected.values()], weight(item))


def _conditions(expected: Item) -> str:
    return " AND ".join(f'"{name}" = ?' for name in expected)


def _row(item: Item) -> tuple[int, str]:
    return int(item["shard_id"]["N"]), item["uuid"]["S"]
