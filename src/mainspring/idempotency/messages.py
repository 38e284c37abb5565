"""Idempotency keys on the wire: requests, answers, and the views of what is recorded of a key."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from mainspring.idempotency.entries import ResultKind
from mainspring.wire.message import Cursor, Headers, Message, PageSize, View

Scope = Annotated[
    str,
    Meta(min_length=1, max_length=255, description="Whose keys: a function, a subscriber, `http`; `api` is this API."),
]
Key = Annotated[
    str,
    Meta(min_length=1, max_length=255, description="As its caller gave it, or as it was derived; for an HTTP request, "
         "the name of its record."),
]  # fmt: skip
RecordedState = Literal["running", "unknown", "free", "done"]


class KeyRef(Message, frozen=True, kw_only=True):
    """Names one idempotency key."""

    scope: Scope
    key: Key


class ListKeys(Message, frozen=True, kw_only=True):
    """A page of keys whose outcome is unknown. A key whose process died is listed once somebody has asked for it again:
    nobody else notices."""

    scope: Annotated[Scope | UnsetType, Meta(description="Only keys of this scope.")] = UNSET
    limit: PageSize = 100
    cursor: Cursor | UnsetType = UNSET


class SettledAnswer(Message, frozen=True, kw_only=True):
    """The HTTP answer that repeats get."""

    status: Annotated[int, Meta(ge=200, le=599)] = 200
    headers: Headers = {}
    body: Annotated[str, Meta(description="The body of the answer, as text.")] = ""


class SettleKey(Message, frozen=True, kw_only=True):
    """Record that work with an unknown outcome was done, and what repeats get: one of result, resultBase64 and answer,
    as the key's `result` says."""

    scope: Scope
    key: Key
    result: Annotated[Raw | UnsetType, Meta(description="Any JSON: what the function returned.")] = UNSET
    result_base64: Annotated[str | UnsetType, Meta(description="For functions that return bytes.")] = UNSET
    answer: Annotated[SettledAnswer | UnsetType, Meta(description="For HTTP requests and deliveries.")] = UNSET
    ttl_seconds: Annotated[float, Meta(ge=1, le=3.2e9, description="How long repeats get it.")] = 86_400.0


class KeyView(View, frozen=True, kw_only=True):
    """What is recorded of an idempotency key."""

    scope: Annotated[str, Meta(description="Whose key it is: that of a function, or of HTTP requests.")]
    key: Annotated[str, Meta(description="The name of the record.")]
    state: Annotated[RecordedState, Meta(description="A claim whose lease has passed is unknown; free may be run.")]
    attempt: Annotated[int, Meta(description="How many callers have held its claim.")]
    reason: Annotated[str, Meta(description="Why it is unknown, in words.")] = ""
    started_at: datetime | None = None
    lease_until: Annotated[datetime | None, Meta(description="Until when others wait for the holder.")] = None
    finished_at: datetime | None = None
    expires_at: Annotated[datetime | None, Meta(description="null: never, because the work would run again.")] = None
    result: Annotated[ResultKind | None, Meta(description="What is recorded, or what settles it, if known.")] = None
    result_bytes: Annotated[int | None, Meta(description="The length of the recorded result.")] = None


class KeysPage(View, frozen=True, kw_only=True):
    """A page of keys. A short one is not necessarily the last."""

    keys: tuple[KeyView, ...]
    next_cursor: str | None = None
