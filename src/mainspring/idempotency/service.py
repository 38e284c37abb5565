"""What operators ask about the idempotency keys in a server's store: `by_hand`, over HTTP."""

from __future__ import annotations

import base64
import binascii

from msgspec import UNSET

from mainspring.errors import Conflict, NotFound, wrong_field
from mainspring.idempotency import by_hand
from mainspring.idempotency.claims import ClaimStore
from mainspring.idempotency.entries import Form, ResultKind
from mainspring.idempotency.http.answers import Answer, Headers, pack
from mainspring.idempotency.messages import KeyRef, KeysPage, KeyView, ListKeys, SettledAnswer, SettleKey
from mainspring.idempotency.stores import IdempotencyStore
from mainspring.wire import cursors
from mainspring.wire.instants import to_instant

FORGOTTEN_MS = 86_400_000
"""How long a key is kept free after it was forgotten: claims that come late find a record, and are refused."""
_FIELDS: dict[ResultKind, str] = {"json": "result", "bytes": "resultBase64", "answer": "answer"}


class KeyService:
    def __init__(self, store: IdempotencyStore) -> None:
        self._claims: ClaimStore = store.waiting()

    async def list(self, request: ListKeys) -> KeysPage:
        page = await by_hand.list_unknown(
            self._claims,
            scope="" if request.scope is UNSET else request.scope,
            after="" if request.cursor is UNSET else cursors.read(request.cursor, str),
            limit=request.limit,
        )
        cursor = None if page.after is None else cursors.write(page.after)
        return KeysPage(keys=tuple(map(_view, page.keys)), next_cursor=cursor)

    async def get(self, request: KeyRef) -> KeyView:
        return _view(await self._found(request.scope, request.key))

    async def settle(self, request: SettleKey) -> KeyView:
        kind, form, body = _result(request)
        found = await self._found(request.scope, request.key)
        if found.state in ("done", "free"):
            raise Conflict(f"Key {request.key!r} is {found.state}: only one whose outcome is unknown can be settled")
        expected = await by_hand.result_kind(self._claims, request.scope, request.key)
        if expected is not None and expected != kind:
            raise wrong_field(f"/{_FIELDS[kind]}", f"Expected {_FIELDS[expected]} for this key, got {_FIELDS[kind]}")
        ttl_ms = round(request.ttl_seconds * 1000)
        await by_hand.settle(self._claims, request.scope, request.key, form, body, ttl_ms=ttl_ms)
        return await self.get(KeyRef(scope=request.scope, key=request.key))

    async def forget(self, request: KeyRef) -> KeyView:
        if not await by_hand.forget(self._claims, request.scope, request.key, ttl_ms=FORGOTTEN_MS):
            raise _missing(request.scope, request.key)
        return await self.get(request)

    async def _found(self, scope: str, key: str) -> by_hand.KeyState:
        found = await by_hand.look(self._claims, scope, key)
        if found is None:
            raise _missing(scope, key)
        return found


def _missing(scope: str, key: str) -> NotFound:
    return NotFound(f"Key {key!r} of the scope {scope!r} does not exist: nothing is recorded for it")


def _result(request: SettleKey) -> tuple[ResultKind, Form, bytes]:
    given = [field is not UNSET for field in (request.result, request.result_base64, request.answer)]
    if sum(given) != 1:
        found = "several" if any(given) else "none"
        raise wrong_field("/result", f"Expected one of result, resultBase64 and answer, got {found}")
    if isinstance(request.answer, SettledAnswer):
        return "answer", "bytes", _packed(request.answer)
    if isinstance(request.result_base64, str):
        try:
            return "bytes", "bytes", base64.b64decode(request.result_base64, validate=True)
        except binascii.Error as error:
            raise wrong_field("/resultBase64", "Expected base64, got something else") from error
    assert request.result is not UNSET
    return "json", "json", bytes(request.result)


def _packed(answer: SettledAnswer) -> bytes:
    body = answer.body.encode()
    headers: Headers = []
    for name, value in answer.headers.items():
        if name.lower() != "content-length":
            headers.append((_ascii(name), _ascii(value)))
    return pack(Answer(answer.status, [*headers, (b"content-length", b"%d" % len(body))], body))


def _ascii(text: str) -> bytes:
    if not text.isascii() or not text.isprintable():
        raise wrong_field("/answer/headers", "Expected headers of printable ASCII, got something else")
    return text.encode("ascii")


def _view(state: by_hand.KeyState) -> KeyView:
    return KeyView(
        scope=state.scope,
        key=state.key,
        state=state.state.value,
        attempt=state.attempt,
        reason=state.reason,
        started_at=None if state.started_at is None else to_instant(state.started_at),
        lease_until=None if state.lease_until is None else to_instant(state.lease_until),
        finished_at=None if state.finished_at is None else to_instant(state.finished_at),
        expires_at=None if state.expires_at is None else to_instant(state.expires_at),
        result=state.result,
        result_bytes=state.result_bytes,
    )
