"""What a route is: a method and an exact path, what it reads and writes, and who answers.

The table of routes is the only description of the surface: dispatch, the OpenAPI document, the reference page and
the tests all read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import msgspec

from mainspring.wire.message import Message, View
from mainspring.wire.strict_json import decode

JSON: Final = "application/json"
NO_CONTENT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of what is not a page: a browser that opens it may load nothing."""

Headers = list[tuple[bytes, bytes]]
Request = TypeVar("Request", bound=Message)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Route:
    """`respond` turns a request body into the body of a 200 answer, or raises a `MainspringError`."""

    method: Literal["GET", "POST"]
    path: str
    tag: str
    summary: str
    respond: Callable[[bytes], Awaitable[bytes]]
    request: type[Message] | None = None
    answer: type[View] | None = None
    example: Message | None = None
    content_type: str = JSON
    policy: str = NO_CONTENT_POLICY
    is_open: bool = False
    """Whether it answers without a token."""
    is_internal: bool = False
    """Whether it answers other instances and nobody else."""
    takes_key: bool = False
    """Whether the header `Idempotency-Key` makes a repeat get the first answer."""
    safe_to_repeat: bool = True
    """Whether such a request is carried out again when nobody knows whether the first one was."""
    is_page: bool = False
    """Whether the answer may be megabytes, because it has what many requests have sent."""
    can_be_remade: Callable[[bytes], bool] | None = None
    """For an answer that may be megabytes now and then: whether asking for it again changes nothing."""
    problems: tuple[str, ...] = ()
    """The codes of the problems that it may answer with."""

    @property
    def operation_id(self) -> str:
        """`/v1/timers/run-now` is `timers_run_now`."""
        return self.path.strip("/").removeprefix("v1/").replace("/", "_").replace("-", "_").replace(".", "_") or "index"


_OPERATION_PROBLEMS: Final = (
    "invalid_input",
    "unauthenticated",
    "not_found",
    "request_timeout",
    "conflict",
    "too_large",
    "unsupported_media_type",
    "misdirected",
    "unsupported",
    "rate_limited",
    "headers_too_large",
    "unavailable",
)


def operation(
    path: str,
    summary: str,
    call: Callable[[Request], Awaitable[View]],
    *,
    example: Request,
    answer: type[View],
    takes_key: bool = False,
    safe_to_repeat: bool = True,
    is_page: bool = False,
    can_be_remade: Callable[[Request], bool] | None = None,
    problems: tuple[str, ...] = (),
) -> Route:
    """A POST route that reads one message and answers with one view. `problems` are those that only it answers with."""
    request = type(example)

    async def respond(body: bytes) -> bytes:
        return _encode(await call(decode(body, request)))

    def is_harmless(body: bytes) -> bool:
        return can_be_remade is not None and can_be_remade(decode(body, request))

    return Route(
        method="POST",
        path=path,
        tag=path.split("/")[2],
        summary=summary,
        respond=respond,
        request=request,
        answer=answer,
        example=example,
        takes_key=takes_key,
        safe_to_repeat=safe_to_repeat,
        is_page=is_page,
        can_be_remade=None if can_be_remade is None else is_harmless,
        problems=(*_OPERATION_PROBLEMS, *problems),
    )


def always(_: Message) -> bool:
    """For what changes nothing, or nothing more."""
    return True


def secure_headers(content_type: str, policy: str) -> Headers:
    return [
        (b"content-type", content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
    ]
