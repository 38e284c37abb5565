"""The rows of shards, for the reads and for the writer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw

from mainspring.model import Shard
from mainspring.stores.sqlite.rows import json_text, shards_from
from mainspring.stores.sqlite.timer_pages import SPOILED
from mainspring.unreadable import owned_shard

_WANTED: Final = "FROM shards WHERE shard_id IN (SELECT value FROM json_each(?))"


def read_shards(connection: apsw.Connection, shard_ids: Iterable[int]) -> list[Shard]:
    """The shards that exist, even one whose owner cannot be read: its version says all that the fence needs."""
    wanted = (json_text(list(shard_ids)),)
    try:
        return shards_from(
            connection.execute(f"SELECT json_group_array(json_array(shard_id, version, owner)) {_WANTED}", wanted).get
        )
    except SPOILED:
        rows: list[Any] = connection.execute(
            f"SELECT shard_id, version, CAST(owner AS BLOB) {_WANTED}", wanted
        ).fetchall()
        return [owned_shard(*row) for row in rows]
