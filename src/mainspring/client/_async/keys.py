"""The idempotency keys in a server's store. Each method is one request; its docstring says whether it is repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import UNSET, UnsetType

from mainspring.client._async.connection import AsyncConnection
from mainspring.client.arguments import to_payload
from mainspring.client.reply import Repeat
from mainspring.idempotency.messages import KeyRef, KeysPage, KeyView, ListKeys, SettledAnswer, SettleKey
from mainspring.wire.arguments import given, request


class AsyncKeys:
    """`client.keys`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self, *, scope: str | None = None, limit: int = 100, cursor: str | None = None) -> KeysPage:
        """One page of keys whose outcome is unknown, of one scope or of all. A read, so it is repeated."""
        asked = request(ListKeys, {"scope": given(scope), "limit": limit, "cursor": given(cursor)})
        return await self._connection.post("/v1/keys/list", asked, KeysPage, repeat=Repeat.READ)

    async def iterate(self, *, scope: str | None = None, page_size: int = 100) -> AsyncIterator[KeyView]:
        """All keys whose outcome is unknown, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(scope=scope, limit=page_size, cursor=cursor)
            for key in page.keys:
                yield key
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get(self, scope: str, key: str) -> KeyView:
        """What is recorded of a key; NotFound if nothing is. A read, so it is repeated."""
        asked = request(KeyRef, {"scope": scope, "key": key})
        return await self._connection.post("/v1/keys/get", asked, KeyView, repeat=Repeat.READ)

    async def settle(
        self,
        scope: str,
        key: str,
        *,
        result: object = UNSET,
        result_base64: str | None = None,
        answer: SettledAnswer | UnsetType = UNSET,
        ttl_seconds: float = 86_400.0,
    ) -> KeyView:
        """Record that work with an unknown outcome was done; Conflict if its outcome is known. Not repeated.

        `result` is any JSON-like value, None included; `answer` is for HTTP requests and deliveries.
        """
        said = {
            "scope": scope,
            "key": key,
            "result": UNSET if result is UNSET else to_payload(result),
            "result_base64": given(result_base64),
            "answer": answer,
            "ttl_seconds": ttl_seconds,
        }
        asked = request(SettleKey, said)
        return await self._connection.post("/v1/keys/settle", asked, KeyView, repeat=Repeat.IF_UNDONE)

    async def forget(self, scope: str, key: str) -> KeyView:
        """Let the work of a key run again, whatever is recorded of it; NotFound if nothing is.

        Not repeated: the work may have run in the meantime.
        """
        asked = request(KeyRef, {"scope": scope, "key": key})
        return await self._connection.post("/v1/keys/forget", asked, KeyView, repeat=Repeat.IF_UNDONE)
