"""The routes of idempotency keys."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Raw

from mainspring.api.routes import Route, always, operation
from mainspring.idempotency.messages import KeyRef, KeysPage, KeyView, ListKeys, SettleKey


class Keys(Protocol):
    """What the service of idempotency keys does."""

    async def list(self, request: ListKeys, /) -> KeysPage: ...
    async def get(self, request: KeyRef, /) -> KeyView: ...
    async def settle(self, request: SettleKey, /) -> KeyView: ...
    async def forget(self, request: KeyRef, /) -> KeyView: ...


_KEY: Final = KeyRef(scope="shop.charge", key="order-17")


def key_routes(keys: Keys) -> tuple[Route, ...]:
    return (
        operation(
            "/v1/keys/list",
            "List idempotency keys whose outcome is unknown",
            keys.list,
            example=ListKeys(limit=50),
            answer=KeysPage,
            can_be_remade=always,
        ),
        operation("/v1/keys/get", "Read what is recorded of a key", keys.get, example=_KEY, answer=KeyView),
        operation(
            "/v1/keys/settle",
            "Record that the work of a key was done",
            keys.settle,
            example=SettleKey(scope=_KEY.scope, key=_KEY.key, result=Raw(b'"receipt of 17"')),
            answer=KeyView,
        ),
        operation(
            "/v1/keys/forget",
            "Let the work of a key run again, whatever is recorded of it",
            keys.forget,
            example=_KEY,
            answer=KeyView,
        ),
    )
