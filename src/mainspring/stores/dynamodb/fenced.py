"""Begin and finish: transactions that hold the fence.

Every transaction checks the version of the shard's row. DynamoDB evaluates that check and the writes as one step: a
claim that comes first makes the check fail, and a claim that comes while the transaction is open is refused until
it has ended. A transaction has at most 100 actions on different rows and 4 MB, so a long batch becomes several,
one after another: two at once would collide at the shard's row. For the same reason the transactions of one shard in
this process wait for each other.

A transaction is all or nothing. When rows are in its way, DynamoDB says which ones, and why: they have changed, others
hold them, they would be too large. These get their verdict, and the rest is tried again without them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from mainspring.errors import TooLarge
from mainspring.model import LAST_VERSION, State, TimerKey
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores.dynamodb.address import Address
from mainspring.stores.dynamodb.client import (
    CONTENTION_ROUNDS,
    Client,
    Contended,
    Invalid,
    TransactionRefused,
    wait_out,
)
from mainspring.stores.dynamodb.items import (
    REQUEST_WEIGHT,
    SHARD_ROW,
    fits,
    history_item,
    number,
    row_key,
    text,
    timer_item,
    weight,
)
from mainspring.stores.partial_results import verdicts
from mainspring.stores.sizes import if_it_can_be_written

Action = dict[str, dict[str, Any]]
_Result = Verdict | BaseException
T = TypeVar("T", Begin, Finish)

_ACTIONS: Final = 99
"""In one transaction, in addition to the check of the fence."""
_SHARDS_AT_ONCE: Final = 32
_NOTHING: Final = "None"
_FAILED: Final = "ConditionalCheckFailed"
_CONTENDED: Final = "TransactionConflict"
_TOO_LARGE: Final = "ValidationError"


class _Part(Struct, frozen=True, eq=False):
    """What one item of a batch does. Its first action, if it has any, is the conditional one."""

    index: int
    key: TimerKey
    actions: list[Action]

    @property
    def weight(self) -> int:
        return sum(weight(action["Put"]["Item"]) for action in self.actions if "Put" in action)


class Fenced:
    """Runs begins and finishes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._shards_at_once = asyncio.Semaphore(_SHARDS_AT_ONCE)

    async def begin(self, items: Sequence[Begin]) -> list[Verdict]:
        return await self._run(items, [_begin_actions(self._client.address, item) for item in items])

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        return await self._run(
            items, [if_it_can_be_written(_finish_actions, self._client.address, item) for item in items]
        )

    async def _run(self, items: Sequence[T], actions: list[list[Action] | None]) -> list[Verdict]:
        results: list[Verdict | BaseException] = [Verdict.REFUSED] * len(items)
        groups: defaultdict[tuple[int, int], list[_Part]] = defaultdict(list)
        for index, (item, acts) in enumerate(zip(items, actions, strict=True)):
            if acts is not None:
                results[index] = Verdict.FENCED
                groups[item.key.shard_id, item.fence].append(_Part(index, item.key, acts))
        # All shards end before an error is raised, so that no part of this call is still under way.
        await asyncio.gather(*(self._run_group(*group, parts, results) for group, parts in groups.items()))
        return verdicts(results)

    async def _run_group(self, shard_id: int, fence: int, parts: list[_Part], results: list[_Result]) -> None:
        """One that gets no answer also ends those of its shard after it: each would cost another timeout."""
        async with self._turns[shard_id], self._shards_at_once:
            try:
                for transaction in _transactions(parts):
                    if not await self._run_transaction(shard_id, fence, transaction, results):
                        return
            except Exception as error:  # noqa: BLE001  (it becomes the result of these parts)
                for part in parts:
                    if results[part.index] is Verdict.FENCED:  # no verdict yet
                        results[part.index] = error

    async def _run_transaction(self, shard_id: int, fence: int, parts: list[_Part], results: list[_Result]) -> bool:
        """Whether the fence held. Each round has fewer parts, or is one of a few, so they come to an end."""
        check = _check(self._client.address, shard_id, fence)
        contended = 0
        while parts:
            try:
                await self._client.call(
                    "transact_write_items",
                    TransactItems=[check, *(action for part in parts for action in part.actions)],
                )
            except Contended:
                codes = [_CONTENDED]
            except TransactionRefused as error:
                codes = error.codes or ["no reason was given"]
            except (Invalid, TooLarge) as error:
                if len(parts) == 1:
                    results[parts[0].index] = Verdict.REFUSED if isinstance(error, TooLarge) else error
                    return True
                # One of them is too large, or all together are: the size of stored rows is not known here.
                half = len(parts) // 2
                return await self._run_transaction(
                    shard_id, fence, parts[:half], results
                ) and await self._run_transaction(shard_id, fence, parts[half:], results)
            else:
                for part in parts:
                    results[part.index] = Verdict.APPLIED
                return True
            if codes[0] == _FAILED:
                return False
            if codes[0] not in (_NOTHING, _CONTENDED):
                raise self._client.unavailable(f"a transaction was refused: {', '.join(codes)}")
            patient = contended < CONTENTION_ROUNDS
            decided = self._decided(parts, codes, patient=patient)
            if not decided:
                if not patient or _CONTENDED not in codes:
                    raise self._client.unavailable("other transactions on the same rows do not end")
                await wait_out(contended)
                contended += 1
            for part, result in decided:
                results[part.index] = result
            gone = {part.index for part, _ in decided}
            parts = [part for part in parts if part.index not in gone]
        return True

    def _decided(self, parts: list[_Part], codes: list[str], *, patient: bool) -> list[tuple[_Part, _Result]]:
        """The parts that are in the way. The codes belong to the check and then to every action, in order."""
        decided: list[tuple[_Part, _Result]] = []
        place = 1
        for part in parts:
            reasons = set(codes[place : place + len(part.actions)]) - {_NOTHING}
            place += len(part.actions)
            if _FAILED in reasons:
                decided.append((part, Verdict.STALE))
            elif _TOO_LARGE in reasons:
                decided.append((part, Verdict.REFUSED))
            elif reasons - {_CONTENDED} or (reasons and not patient):
                decided.append((part, self._client.unavailable(f"a row was refused: {', '.join(sorted(reasons))}")))
        return decided


def _transactions(parts: list[_Part]) -> Iterator[list[_Part]]:
    """In order, none with too many actions, too heavy, or with two parts that name the same timer."""
    transaction: list[_Part] = []
    keys: set[TimerKey] = set()
    room, carries = _ACTIONS, REQUEST_WEIGHT
    for part in parts:
        if transaction and (part.key in keys or len(part.actions) > room or part.weight > carries):
            yield transaction
            transaction, keys, room, carries = [], set(), _ACTIONS, REQUEST_WEIGHT
        transaction.append(part)
        keys.add(part.key)
        room -= len(part.actions)
        carries -= part.weight
    yield transaction


# What is written


def _check(address: Address, shard_id: int, fence: int) -> Action:
    """A shard that was never claimed has version 0."""
    condition = "attribute_not_exists(#version)" if fence == 0 else "#version = :fence"
    check: dict[str, object] = {
        "TableName": address.timers,
        "Key": row_key(shard_id, SHARD_ROW),
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#version": "version"},
    }
    if fence != 0:
        check["ExpressionAttributeValues"] = {":fence": number(fence)}
    return {"ConditionCheck": check}


def _begin_actions(address: Address, item: Begin) -> list[Action] | None:
    update = {
        "TableName": address.timers,
        "Key": row_key(item.key.shard_id, item.key.uuid),
        "UpdateExpression": "SET #state = :running, #version = :next, #fence = :fence ADD #attempts :one",
        "ConditionExpression": "#version = :expect AND #version < :last",
        "ExpressionAttributeNames": {f"#{name}": name for name in ("state", "version", "fence", "attempts")},
        "ExpressionAttributeValues": {
            ":running": text(State.RUNNING.value),
            ":expect": number(item.expect),
            ":last": number(LAST_VERSION),
            ":next": number(item.expect + 1),
            ":fence": number(item.fence),
            ":one": number(1),
        },
    }
    return [{"Update": update}]


def _finish_actions(address: Address, item: Finish) -> list[Action] | None:
    """None if DynamoDB cannot hold the row or the entry."""
    actions = [] if item.change is None else [_change(address, item.change)]
    if item.attempt is not None:
        actions.append({"Put": {"TableName": address.history, "Item": history_item(item.key, item.attempt)}})
    return actions if all(fits(action["Put"]["Item"]) for action in actions if "Put" in action) else None


def _change(address: Address, change: Put | Remove) -> Action:
    condition: dict[str, object] = {
        "TableName": address.timers,
        "ConditionExpression": "#version = :expect",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":expect": number(change.expect)},
    }
    if isinstance(change, Remove):
        return {"Delete": {**condition, "Key": row_key(change.key.shard_id, change.key.uuid)}}
    if change.expect == 0:
        condition["ConditionExpression"] = "attribute_not_exists(#version)"
        del condition["ExpressionAttributeValues"]
    return {"Put": {**condition, "Item": timer_item(change)}}
