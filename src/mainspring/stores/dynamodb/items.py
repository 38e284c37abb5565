"""Values to items and back.

The due order is the order of the text `due`: the instant with nineteen digits, then the uuid. DynamoDB compares
texts by their UTF-8 bytes. A row of the timers table is a timer, or, under
the uuid `#shard`, the ownership of the shard; only timers have `due`, so only they are in the index.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from mainspring.model import Attempt, Count, Detail, Record, Shard, State, Timer, TimerKey, json_payload
from mainspring.store import Position, Put, next_version
from mainspring.stores.dynamodb.client import Item, Value
from mainspring.stores.sizes import text_bytes
from mainspring.unreadable import Unreadable, attempt_of, each, reason_of

SHARD_ROW: Final = "#shard"

REQUEST_WEIGHT: Final = 500_000
"""The most that one request carries, unless a single row is larger: a large body holds up the event loop."""

ITEM_BYTES: Final = 400 * 1024
"""The most that a row may take, including its copies in local indexes."""

_BELOW_ZERO: Final = 10**19

_details = msgspec.json.Decoder(Detail)
_attempts = msgspec.json.Decoder(Attempt)


def number(value: int) -> Value:
    return {"N": str(value)}


def text(value: str) -> Value:
    return {"S": value}


def instant(value: int) -> str:
    """Text in the order of the numbers. Negative ones count up from the least, after a sign that sorts first."""
    return f"{value:019}" if value >= 0 else f"-{_BELOW_ZERO + value:019}"


def _instant_from(digits: str) -> int:
    return int(digits[1:]) - _BELOW_ZERO if digits.startswith("-") else int(digits)


def due_key(position: Position) -> str:
    return f"{instant(position.due_at)}#{position.uuid}"


def row_key(shard_id: int, uuid: str) -> Item:
    return {"shard_id": number(shard_id), "uuid": text(uuid)}


def timer_item(change: Put) -> Item:
    """The whole row. Labels are stored again beside the detail that contains them, where a filter can reach them."""
    timer = change.timer
    return {
        **row_key(timer.shard_id, timer.uuid),
        "due": text(due_key(Position(timer.due_at, timer.uuid))),
        "namespace": text(timer.namespace),
        "timer_id": text(timer.timer_id),
        "state": text(timer.state.value),
        "attempts": number(timer.attempts),
        "generation": number(timer.generation),
        "version": number(next_version(change.expect, timer.version)),
        "fence": number(timer.fence),
        "detail": text(msgspec.json.encode(timer.detail).decode()),
        "labels": {"M": {name: text(value) for name, value in timer.detail.labels.items()}},
        "payload": {"NULL": True} if timer.payload is None else text(timer.payload),
    }


def timer_from(item: Item) -> Timer:
    return Timer(
        shard_id=int(item["shard_id"]["N"]),
        uuid=item["uuid"]["S"],
        namespace=item["namespace"]["S"],
        timer_id=item["timer_id"]["S"],
        due_at=due_at_from(item),
        detail=_details.decode(item["detail"]["S"]),
        payload=json_payload(item["payload"].get("S")),
        state=State(item["state"]["S"]),
        attempts=msgspec.convert(int(item["attempts"]["N"]), Count),
        generation=msgspec.convert(int(item["generation"]["N"]), Count),
        version=msgspec.convert(int(item["version"]["N"]), Count),
        fence=int(item["fence"]["N"]),
    )


def timers_from(items: Iterable[Item]) -> list[Timer | Unreadable]:
    return each(items, timer_from, _unreadable)


def _unreadable(item: Item, error: Exception) -> Unreadable:
    version = item.get("version", {}).get("N", "")
    name = f"{item['shard_id']['N']}/{item['uuid']['S']}"
    return Unreadable("timer", name, reason_of(error), int(version) if str(version).isdigit() else 0)


def place_of(item: Item) -> Position:
    """By the key of the index, so it is known even if the item cannot be read."""
    due: str = item["due"]["S"]
    return Position(due_at_from(item), due.partition("#")[2])


def due_at_from(item: Item) -> int:
    due: str = item["due"]["S"]
    return _instant_from(due.partition("#")[0])


def shard_from(shard_id: int, item: Item | None) -> Shard:
    return Shard(shard_id) if item is None else Shard(shard_id, int(item["version"]["N"]), item["owner"]["S"])


def fits(item: Item, *, besides: int = 0) -> bool:
    """Whether DynamoDB can hold it and this many extra bytes."""
    copies = 2 if "due" in item else 1  # a timer is in its table and in the index, and both count
    return copies * (_item_bytes(item) + besides) <= ITEM_BYTES


def _item_bytes(item: Item) -> int:
    """The size of a row as DynamoDB counts it."""
    size = 0
    for name, value in item.items():
        size += len(name)
        if "S" in value:
            size += text_bytes(value["S"])
        elif "M" in value:  # of texts
            size += 3 + sum(1 + text_bytes(key) + text_bytes(one["S"]) for key, one in value["M"].items())
        else:  # a number, or nothing
            size += 21
    return size


def weight(item: Item) -> int:
    """About how many characters a row takes in a request."""
    return sum(len(value.get("S", "")) for value in item.values())


# History


def history_timer(key: TimerKey) -> str:
    return f"{key.shard_id}#{key.uuid}"


def history_place(started_at: int, attempt: int) -> str:
    return f"{instant(started_at)}#{attempt:010}"


def history_item(key: TimerKey, attempt: Attempt) -> Item:
    """The digest ends the key so that an attempt reported twice is one row and two different reports are two."""
    document = msgspec.json.encode(attempt)
    digest = blake2b(document, digest_size=8).hexdigest()
    return {
        "timer": text(history_timer(key)),
        "entry": text(f"{history_place(attempt.started_at, attempt.attempt)}#{digest}"),
        "shard_id": number(key.shard_id),
        "document": text(document.decode()),
    }


def attempt_from(item: Item) -> Attempt:
    return _attempts.decode(item["document"]["S"])


def attempts_from(key: TimerKey, items: Iterable[Item]) -> list[Attempt | Unreadable]:
    return each(items, attempt_from, lambda _, error: attempt_of(key, error))


# Records


def records_from(collection: str, items: Iterable[Item]) -> list[Record | Unreadable]:
    return each(items, record_from, lambda item, error: Unreadable(collection, item["key"]["S"][1:], reason_of(error)))


def record_from(item: Item) -> Record:
    expires_at = item.get("expires_at")
    key: str = item["key"]["S"]
    return Record(
        key[1:], item["value"]["B"], int(item["version"]["N"]), None if expires_at is None else int(expires_at["N"])
    )
