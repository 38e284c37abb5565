"""What an answer means: a value, a typed error, and whether the request may be sent again. Pure decisions.

A request is sent again only when that cannot do anything twice. That is certain if nothing was sent, or the server
said that it did nothing (`rate_limited`, `unavailable`). Everything else that went wrong on the way (a lost
connection, a missing answer, a store whose commit is in doubt, a gateway's error) leaves the outcome unknown;
then a request with `Repeat.IF_UNDONE` is not sent again. A write that ends like that has `outcome_unknown` set.
"""

from __future__ import annotations

import random
from enum import Enum
from time import time
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from mainspring import errors
from mainspring.delivery.call import Reply
from mainspring.delivery.webhook import retry_after_ms
from mainspring.errors import FieldError, MainspringError, NetworkError, ServerError

FIRST_WAIT_SECONDS: Final = 0.25
LONGEST_WAIT_SECONDS: Final = 30.0
"""A server that asks for more patience than this gets its error passed on instead."""

T = TypeVar("T")


class Repeat(Enum):
    """What sending the same request a second time would do."""

    READ = "read"
    """Nothing, like the first."""
    HARMLESS = "harmless"
    """Nothing that the first has not done."""
    IF_UNDONE = "if undone"
    """Something more: sent again only if the first certainly did nothing."""
    PROBE = "probe"
    """Nothing, but its first answer is the one that was asked for."""

    @property
    def reads(self) -> bool:
        return self in (Repeat.READ, Repeat.PROBE)


class ReplyProblem(Struct, frozen=True, rename="camel"):
    """An application/problem+json answer, as far as it is used."""

    code: str = ""
    detail: str = ""
    title: str = ""
    errors: tuple[FieldError, ...] = ()
    retryable: bool = False
    request_id: str = ""


def _tree(root: type[MainspringError]) -> list[type[MainspringError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _tree(child))]


_BY_CODE: Final = {  # a kind without a code of its own is internal to some module
    kind.code: kind for kind in _tree(MainspringError) if kind is not MainspringError and "code" in vars(kind)
}
_BY_STATUS: Final[dict[int, type[MainspringError]]] = {
    400: errors.InvalidInput,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.Unavailable,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.TooLarge,
    429: errors.RateLimited,
    431: errors.TooLarge,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def error_of(reply: Reply) -> MainspringError | None:
    """The typed error of an answer, None for success."""
    if reply.status is None or reply.problem:
        error: MainspringError = NetworkError(reply.detail)
        error.outcome_unknown = reply.sent
        return error
    if reply.truncated:
        return NetworkError(f"Expected an answer of a bounded size, got more than {len(reply.body)} bytes")
    if 200 <= reply.status < 300:
        return None
    problem = _problem_in(reply)
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(reply.status)
    if kind is None:
        kind = ServerError if reply.status >= 500 else errors.InvalidInput if reply.status >= 400 else NetworkError
    error = kind(_words(problem, reply.status), errors=problem.errors)
    error.request_id = problem.request_id or reply.headers.get("x-request-id", "")
    error.outcome_unknown = reply.status >= 500 and problem.code != errors.Unavailable.code
    error.retryable = problem.retryable or error.retryable
    return error


def value_of(reply: Reply, kind: type[T]) -> T:
    """The value of a successful answer."""
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NetworkError(f"Expected a {kind.__name__} as the answer, got: {error}") from error


def wait_before_repeat(
    reply: Reply, error: MainspringError, repeat: Repeat, *, tries: int, retries: int
) -> float | None:
    """Seconds to wait before the request is sent again, None when it must not be. `tries` were made."""
    if repeat is Repeat.PROBE or tries > retries or not error.retryable or reply.problem == "refused":
        return None
    if error.outcome_unknown and repeat is Repeat.IF_UNDONE:
        return None
    wanted = retry_after_ms(reply.headers.get("retry-after", ""), round(time() * 1000)) / 1000
    if wanted > LONGEST_WAIT_SECONDS:
        return None
    backoff = min(FIRST_WAIT_SECONDS * 2.0 ** (tries - 1), LONGEST_WAIT_SECONDS)
    return max(wanted, backoff * random.uniform(0.5, 1.0))


def longest_span_seconds(*, timeout: float, retries: int) -> float:
    """An upper bound on the time from when a request is first sent until its last repeat has ended."""
    return (retries + 1) * (timeout + LONGEST_WAIT_SECONDS)


def _problem_in(reply: Reply) -> ReplyProblem:
    if "json" in reply.headers.get("content-type", ""):
        try:
            return msgspec.json.decode(reply.body, type=ReplyProblem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ReplyProblem()  # some gateway's own JSON: the status has to be enough
    return ReplyProblem()


def _words(problem: ReplyProblem, status: int) -> str:
    return problem.detail or problem.title or f"Expected an answer from the Mainspring API, got status {status}"
