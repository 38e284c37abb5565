"""The call of a fetch: one request, and for GET and HEAD the redirects that it may follow, within one timeout.

Every request goes over a connection of its own, because one that was kept alive may already be closed on the other
side, which shows only after the request is sent. Every hop goes through the guard. The reqId goes out as
`Idempotency-Key`, unless the request has one: a target that knows such keys can then be asked what became of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

from msgspec import UNSET, Struct
from msgspec.structs import replace

import mainspring
from mainspring.clock import Clock
from mainspring.delivery.call import AnswerMemory, Call, Reply, Sends
from mainspring.fetches.messages import OutboundRequest

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
KEY: Final = "idempotency-key"
_FOLLOWING: Final = frozenset({"GET", "HEAD"})
_FOR_EVERYBODY: Final = frozenset(
    {
        "accept",
        "accept-language",
        "cache-control",
        "if-modified-since",
        "if-none-match",
        "range",
        "user-agent",
    }
)
"""What is sent on to another origin. Any other header may be a secret meant for the first, whatever its name."""


class Called(Struct, frozen=True):
    """How a call ended, and where."""

    reply: Reply
    url: str
    redirected: bool


def body_of(request: OutboundRequest) -> bytes:
    """Raises ValueError when `bodyBase64` is not base64."""
    if request.body_base64 is not UNSET:
        return base64.b64decode(request.body_base64, validate=True)
    return b"" if request.body is UNSET else request.body.encode()


async def call(
    sender: Sends,
    request: OutboundRequest,
    *,
    req_id: str,
    timeout_ms: int,
    clock: Clock,
    room: AnswerMemory | None = None,
    sent: Callable[[], None] | None = None,
) -> Called:
    """`room` is asked before an answer is read, `sent` is called when the request has left. Keeps none of its body."""
    begun = clock.monotonic()
    next_call = _first(request, req_id, timeout_ms, room, sent)
    url, redirects = request.url, request.max_redirects
    del request
    for left in range(redirects, -1, -1):
        sending = sender.send(next_call)
        next_call = replace(next_call, body=b"", sent=None)
        reply = await sending
        elapsed_ms = round((clock.monotonic() - begun) * 1000)
        hop = _next(next_call, reply, timeout_ms - elapsed_ms) if left else None
        if hop is None:
            break
        next_call = hop
        reply = replace(reply, body=b"")  # nobody reads it
        if room is not None:
            room.give_back()
    return Called(replace(reply, duration_ms=elapsed_ms), next_call.url, next_call.url != url)


def _first(
    request: OutboundRequest, req_id: str, timeout_ms: int, room: AnswerMemory | None, sent: Callable[[], None] | None
) -> Call:
    headers = tuple(request.headers.items())
    ours = {"user-agent": f"mainspring/{mainspring.__version__}", KEY: req_id}
    theirs = {name.lower() for name in request.headers}
    headers += tuple((name, value) for name, value in ours.items() if name not in theirs)
    return Call(request.method, request.url, headers, body_of(request), timeout_ms, fresh=True, room=room, sent=sent)


def _next(last: Call, reply: Reply, left_ms: int) -> Call | None:
    """The request that a redirect asks for, if there is time for it."""
    if reply.status not in REDIRECTS or last.method not in _FOLLOWING or left_ms <= 0:
        return None
    location = reply.headers.get("location", "")
    try:
        url = urldefrag(urljoin(last.url, location)).url
        moved_away = _origin(url) != _origin(last.url)
    except ValueError:  # not a URL: then the redirect is all there is
        return None
    if not location:
        return None
    headers = tuple((name, value) for name, value in last.headers if not moved_away or name.lower() in _FOR_EVERYBODY)
    return replace(last, url=url, headers=headers, body=b"", timeout_ms=left_ms)


def _origin(url: str) -> tuple[str, str, int]:
    """Raises ValueError for an invalid port."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or (443 if scheme == "https" else 80)
