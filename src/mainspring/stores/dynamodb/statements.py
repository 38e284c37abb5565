"""Conditional writes of single rows, in batches: users' writes, and the claims of shards.

DynamoDB's plain batches have no conditions, but batches of PartiQL statements do: each of at most 25 statements
is a write of one row with a condition of its own, and succeeds or fails by itself. Statements of callers that
arrive while enough batches are under way share the next one, which costs a tenth of the work of asking one by one.
Only a removal goes by itself, as a conditional `DeleteItem`: PartiQL calls it a success when there is no such row.

A batch never names a row twice. Statements that do are run in order, one wave after another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from mainspring.errors import TooLarge
from mainspring.model import Shard
from mainspring.store import Put, Remove, Verdict
from mainspring.stores.committer import Admission, Committer, fail, tell
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
from mainspring.stores.groups import Capacity, Request
from mainspring.stores.partial_results import verdicts
from mainspring.stores.sizes import OUTCOME_BYTES, if_it_can_be_written

_BATCH: Final = 25
_PARALLEL: Final = 16

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


class _Asked(Request):
    """One write, and what became of it."""

    __slots__ = ("answer", "write")
    answer: Verdict

    def __init__(self, write: SingleWrite) -> None:
        super().__init__(size=write.weight)  # a removal weighs as much as a request, so it is alone
        self.write = write


class Statements:
    """Runs statements; at most `_PARALLEL` batches are under way at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admission = Admission()
        self._committer: Committer[_Asked] = Committer(
            self._run, room=Capacity(_BATCH, REQUEST_WEIGHT), width=_PARALLEL, admission=self._admission
        )

    async def run(self, writes: Sequence[SingleWrite | None]) -> list[Verdict]:
        """A verdict for each. A caller that goes away does not take its batch with it. A write without room is None."""
        self._admission.check(len(writes))
        results: list[Verdict | BaseException] = [Verdict.REFUSED] * len(writes)
        asked = {index: _Asked(write) for index, write in enumerate(writes) if write is not None}
        for wave in _waves(asked.values()):
            # All of them end before an error is raised, so that no part of this call is still under way.
            await asyncio.gather(*map(self._committer.put, wave), return_exceptions=True)
        for index, request in asked.items():
            results[index] = request.error or request.answer
        return verdicts(results)

    async def close(self) -> None:
        await self._committer.close()

    async def _run(self, group: list[_Asked]) -> None:
        for wave in _waves(group):
            await self._write(wave)

    async def _write(self, batch: list[_Asked]) -> None:
        try:
            for round_ in range(CONTENTION_ROUNDS):
                batch = self._tell_callers(batch, await self._ask(batch))
                if not batch:
                    return
                await wait_out(round_)
            raise self._client.unavailable("other transactions on the same rows do not end")
        except (Invalid, TooLarge) as error:
            if len(batch) == 1:
                _tell(batch[0], Verdict.REFUSED if isinstance(error, TooLarge) else error)
            else:  # one of them is to blame
                for request in batch:
                    await self._write([request])
        except Exception as error:  # noqa: BLE001  (every caller of the batch is told)
            fail(batch, error)

    async def _ask(self, batch: list[_Asked]) -> list[Answer]:
        statements = []
        for request in batch:
            if isinstance(request.write, Removal):
                return [await self._remove(request.write)]
            statements.append({"Statement": request.write.partiql, "Parameters": request.write.parameters})
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

    def _tell_callers(self, batch: list[_Asked], responses: list[Answer]) -> list[_Asked]:
        """Tell the callers; what is left was refused because of an open transaction."""
        contended = []
        for request, response in zip(batch, responses, strict=True):
            error = response.get("Error")
            if error is None:
                _tell(request, Verdict.APPLIED)
            elif error["Code"] in _CONDITION_FAILED:
                _tell(request, Verdict.STALE)
            elif error["Code"] in _CONTENDED:
                contended.append(request)
            elif error["Code"] in _NO_ROOM or too_large(error.get("Message", "")):
                _tell(request, Verdict.REFUSED)
            else:
                _tell(request, self._client.unavailable(f"{error['Code']}: {error.get('Message', '')}"))
        return contended


def _tell(request: _Asked, result: Verdict | Exception) -> None:
    """At once: its caller need not wait for the rest of the batch."""
    if isinstance(result, Exception):
        request.error = result
    else:
        request.answer = result
    tell(request)


def _waves(requests: Iterable[_Asked]) -> Iterable[list[_Asked]]:
    """Split so that no wave names a row twice and the writes of each row stay in order."""
    waves: list[list[_Asked]] = []
    seen: Counter[tuple[int, str]] = Counter()
    for request in requests:
        row = request.write.row
        if seen[row] == len(waves):
            waves.append([])
        waves[seen[row]].append(request)
        seen[row] += 1
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
    """Sets every attribute that a row of its kind has, so that nothing of the old row remains."""
    key = {name: item[name] for name in ("shard_id", "uuid")}
    changed = {name: value for name, value in item.items() if name not in key}
    settings = " ".join(f'SET "{name}" = ?' for name in changed)
    partiql = f'UPDATE "{table}" {settings} WHERE {_conditions({**key, **expected})}'
    return Statement(_row(item), partiql, [*changed.values(), *key.values(), *expected.values()], weight(item))


def _conditions(expected: Item) -> str:
    return " AND ".join(f'"{name}" = ?' for name in expected)


def _row(item: Item) -> tuple[int, str]:
    return int(item["shard_id"]["N"]), item["uuid"]["S"]
