"""The record contract. A collection is a partition in key order, except the collections that are only looked up:
there every record is a partition of its own, so that any number of callers can write at once.

A record past its expiry does not exist for `now`; DynamoDB's own expiry removes it some time later. The sort key is
`=` and the record's key, because DynamoDB has no empty keys.
"""

from __future__ import annotations

from typing import Final

from mainspring.errors import TooLarge, Unsupported
from mainspring.model import Record
from mainspring.store import PAGE_BYTES
from mainspring.stores.collections import LOOKED_UP
from mainspring.stores.dynamodb.client import Client, ConditionFailed, Item, Value
from mainspring.stores.dynamodb.items import ITEM_BYTES, number, records_from, text
from mainspring.unreadable import readable

_NAMES: Final = {"#expires": "expires_at", "#version": "version"}
_LIVE: Final = "(attribute_not_exists(#expires) OR #expires > :now)"
_ABSENT: Final = "(attribute_not_exists(#version) OR #expires <= :now)"


class Records:
    """Records in one table; no record is ever part of a transaction, so none is contended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = client.address.records

    async def get(self, collection: str, key: str, *, now: int) -> Record | None:
        answer = await self._client.call(
            "get_item", TableName=self._table, Key=_place(collection, key), ConsistentRead=True
        )
        if "Item" not in answer:
            return None
        live = [
            record
            for record in readable(records_from(collection, [answer["Item"]]))
            if record.expires_at is None or record.expires_at > now
        ]
        return live[0] if live else None

    async def put(self, collection: str, record: Record, *, expect: int, now: int) -> bool:
        value, expires_at = record.value, record.expires_at
        if len(value) > ITEM_BYTES:  # refused before megabytes are sent in vain
            raise TooLarge(f"Expected a record that fits into DynamoDB (400 KB), got {len(value)} bytes")
        item: Item = {**_place(collection, record.key), "value": {"B": value}, "version": number(record.version)}
        if expires_at is not None:
            # DynamoDB's own expiry counts seconds and must not come early.
            item |= {"expires_at": number(expires_at), "expires_s": number(-(-expires_at // 1000))}
        try:
            await self._client.call("put_item", TableName=self._table, Item=item, **_condition(expect, now))
        except ConditionFailed:
            return False
        return True

    async def delete(self, collection: str, key: str, *, expect: int, now: int) -> bool:
        if expect == 0:
            return False
        try:
            await self._client.call(
                "delete_item", TableName=self._table, Key=_place(collection, key), **_condition(expect, now)
            )
        except ConditionFailed:
            return False
        return True

    async def scan(self, collection: str, *, now: int, after: str, limit: int) -> list[Record]:
        if collection in LOOKED_UP:
            raise Unsupported(f"Expected a collection that is listed, got {collection!r}, which is only looked up")
        query: dict[str, object] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "Limit": limit,
            "KeyConditionExpression": "#partition = :partition AND #key > :after",
            "FilterExpression": _LIVE,
            "ExpressionAttributeNames": {"#partition": "partition", "#key": "key", "#expires": "expires_at"},
            "ExpressionAttributeValues": {
                ":partition": text(f"={collection}"),
                ":after": text(f"={after}"),
                ":now": number(now),
            },
        }
        records: list[Record] = []
        while len(records) < limit and sum(len(record.value) for record in records) <= PAGE_BYTES:
            answer = await self._client.call("query", **query)
            records += readable(records_from(collection, answer["Items"]))
            if "LastEvaluatedKey" not in answer:
                break
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return records[:limit]


def _place(collection: str, key: str) -> Item:
    partition = f"={collection}:{key}" if collection in LOOKED_UP else f"={collection}"
    return {"partition": text(partition), "key": text(f"={key}")}


def _condition(expect: int, now: int) -> dict[str, object]:
    values: dict[str, Value] = {":now": number(now)}
    if expect:
        values[":expect"] = number(expect)
    return {
        "ConditionExpression": f"#version = :expect AND {_LIVE}" if expect else _ABSENT,
        "ExpressionAttributeNames": _NAMES,
        "ExpressionAttributeValues": values,
    }
