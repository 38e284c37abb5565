"""What became of a fetch: the table of its outcomes, as pure functions.

| what happened                                        | state      | kind        | definite |
|------------------------------------------------------|------------|-------------|----------|
| a response, of whatever status                       | succeeded  |             |          |
| a status, and then no whole or readable body         | succeeded  |             |          |
| no connection: refused, no such host, TLS            | failed     | network     | yes      |
| no connection in time                                | failed     | timeout     | yes      |
| address forbidden                                    | failed     | refused     | yes      |
| sent, then reset or closed without a response        | unknown    | network     | no       |
| sent, no response in time; GET, HEAD, OPTIONS        | failed     | timeout     | yes      |
| sent, no response in time; other methods             | unknown    | timeout     | no       |
| sent, no HTTP came back; GET, HEAD, OPTIONS          | failed     | unreadable  | yes      |
| sent, no HTTP came back; other methods               | unknown    | unreadable  | no       |
| no file descriptor left in the executor, in time     | failed     | overloaded  | yes      |
| no executor of the pool in time                      | failed     | overloaded  | yes      |
| nobody has begun it 10 s after its time              | failed     | overloaded  | yes      |
| no result from the executor, or it is gone           | unknown    | watchdog    | no       |
| cancelled before it was sent                         | cancelled  | cancelled   | yes      |
| cancelled while the call was under way               | cancelled  | cancelled   | no       |

*Definite* means that the target has certainly not acted on it. Whatever is not definite says so in words. A status
says that the target has acted, whatever becomes of the body: it is never given up for an unknown.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mainspring.delivery.call import Reply
from mainspring.fetches.messages import ErrorKind

FinalState = Literal["succeeded", "failed", "unknown", "cancelled"]
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing, by the rules of HTTP."""
MAY_HAVE_CHANGED: Final = "The external system may have been changed; check it before you try again."


class Response(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A response as it is stored; its body as base64."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str
    truncated: bool = False
    redirected: bool = False
    set_cookies: tuple[str, ...] = ()
    """If there are several, which `headers` has joined."""
    problem: str = ""
    """Why the body is not whole, or as it came."""


class Failure(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why there is no response."""

    kind: ErrorKind
    message: str
    definite: bool


class Outcome(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The end of a fetch: a response, or a failure."""

    state: FinalState
    finished_at: int
    duration_ms: int
    response: Response | None = None
    failure: Failure | None = None

    @property
    def words(self) -> str:
        """For people, in one line."""
        if self.response is not None:
            return f"The target answered {self.response.status}. {self.response.problem}".rstrip()
        return self.failure.message if self.failure is not None else ""


def of_reply(reply: Reply, *, method: str, url: str, redirected: bool, finished_at: int) -> Outcome:
    """What a call means. `url` is where the answer came from, or would have."""
    happened = reply.detail if reply.detail.endswith(".") else f"{reply.detail}."
    response = _response(reply, url=url, redirected=redirected, problem=happened)
    if response is not None:
        return Outcome(state="succeeded", finished_at=finished_at, duration_ms=reply.duration_ms, response=response)
    kind: ErrorKind = "overloaded" if reply.problem == "exhausted" else reply.problem or "network"
    if not reply.sent:
        definite, consequence = (
            True,
            "Nothing was sent to where the redirect led." if redirected else "Nothing was sent.",
        )
    elif kind in ("timeout", "unreadable") and method in SAFE_METHODS:
        definite, consequence = True, f"{method} changes nothing, by the rules of HTTP."
    else:
        definite, consequence = False, MAY_HAVE_CHANGED
    return Outcome(
        state="failed" if definite else "unknown",
        finished_at=finished_at,
        duration_ms=reply.duration_ms,
        failure=Failure(kind=kind, message=f"{happened} {consequence}", definite=definite),
    )


def _response(reply: Reply, *, url: str, redirected: bool, problem: str) -> Response | None:
    came = reply if reply.broken is None else reply.broken
    if came.status is None:
        return None
    is_broken = reply.broken is not None
    return Response(
        status=came.status,
        headers=came.headers,
        body=came.body,
        url=url,
        truncated=reply.truncated or is_broken,
        redirected=redirected,
        set_cookies=came.set_cookies if len(came.set_cookies) > 1 else (),
        problem=problem if is_broken else "",
    )


def of_no_executor(pool: str, *, created_at: int, now: int) -> Outcome:
    """No executor of the pool was there to make the call, for as long as it may take."""
    message = f"No executor of the pool {pool} was alive for {(now - created_at) / 1000:g} s. Nothing was sent."
    return _overloaded(message, now)


def of_no_room(*, created_at: int, now: int) -> Outcome:
    """Nobody has begun the call: all places were taken, or nobody was there."""
    seconds = (now - created_at) / 1000
    return _overloaded(f"There was no room for the call for {seconds:g} s. Nothing was sent.", now)


def _overloaded(message: str, now: int) -> Outcome:
    failure = Failure(kind="overloaded", message=message, definite=True)
    return Outcome(state="failed", finished_at=now, duration_ms=0, failure=failure)


def of_silence(executor: str, *, started_at: int, watchdog_at: int, now: int) -> Outcome:
    """The watchdog's instant has come, and no result."""
    budget = (watchdog_at - started_at) / 1000
    reason = f"The executor {executor} did not report a result within {budget:g} s."
    return _unknown(reason, started_at=started_at, now=now)


def of_lost_executor(executor: str, *, started_at: int, now: int) -> Outcome:
    """Whoever made the call is gone, and with it what it knew."""
    reason = f"The executor {executor} stopped before it recorded a result; the call may have been made."
    return _unknown(reason, started_at=started_at, now=now)


def _unknown(reason: str, *, started_at: int, now: int) -> Outcome:
    return Outcome(
        state="unknown",
        finished_at=now,
        duration_ms=max(0, now - started_at),
        failure=Failure(kind="watchdog", message=f"{reason} {MAY_HAVE_CHANGED}", definite=False),
    )


def of_cancelling(*, started_at: int | None, now: int) -> Outcome:
    """Somebody cancelled it. A call that is under way is cut off where it is made."""
    message = "Cancelled before it was sent."
    if started_at is not None:
        message = f"Cancelled; the call was under way. {MAY_HAVE_CHANGED}"
    return Outcome(
        state="cancelled",
        finished_at=now,
        duration_ms=0 if started_at is None else max(0, now - started_at),
        failure=Failure(kind="cancelled", message=message, definite=started_at is None),
    )


def cut(outcome: Outcome, body_bytes: int) -> Outcome:
    """The same with at most this much of the response's body."""
    response = outcome.response
    if response is None or len(response.body) <= body_bytes:
        return outcome
    return replace(outcome, response=replace(response, body=response.body[:body_bytes], truncated=True))
