"""Idempotency-Key for adding items: the middleware of Mainspring, around this one path.

A checkout has keys of its own: for it a key names the cart that is meant, and a failure is no result.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.errors import MainspringError
from mainspring.idempotency import IdempotencyStore
from mainspring.idempotency.http.middleware import IdempotencyMiddleware
from telecom_cart.api.problems import key_error_of, response_of
from telecom_cart.api.requests import MAX_BODY_BYTES

_ITEMS: Final = re.compile(r"/v1/carts/[^/]+/items")


class KeyedAdds:
    def __init__(self, app: ASGIApp, *, store: IdempotencyStore) -> None:
        self._app = app
        self._keyed = IdempotencyMiddleware(
            app,
            store=store,
            methods=("POST",),
            keep=lambda status: status < 300,  # what failed may be tried again with the same key
            max_request_bytes=MAX_BODY_BYTES,
            scope="telecom-cart.items",
            refuse=_refused,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_keyed = scope["type"] == "http" and _ITEMS.fullmatch(scope["path"])
        await (self._keyed if is_keyed else self._app)(scope, receive, send)


def _refused(error: MainspringError, _: object) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    response = response_of(key_error_of(error))
    headers = [(name, value) for name, value in response.raw_headers if name != b"retry-after"]  # it adds its own
    return response.status_code, headers, bytes(response.body)
