"""How adapters speak HTTP: requests that may be repeated go out directly, and the one that may not through `Once`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True)
class Request:
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Once(Protocol):
    """Makes a request at most once for each id, whatever dies meanwhile; asked again with the same id, it answers what
    is known of that one request.

    Raises `Unreachable` if the request was certainly not made, and `Uncertain` if nobody can tell.
    """

    async def __call__(self, request: Request, *, request_id: str, timeout_seconds: float) -> Answer: ...
