"""Who answers the calls of an instance under test: what the test says, and otherwise a receiver that is content.

    world.answer("https://bank.example/pay", Answer(status=503), Answer(body=b'{"paid": true}'))

The first call to that URL, or to one below it, gets the first answer, and so on; the last one stays. Calls to this
machine that nobody has answers for are really made: a test that names a port of its own has somebody there. Every other
call gets 200 with `{"ok":true}`, and none leaves the machine.

An answer may be a function. What it raises is not for the receiver's caller but for the test: it is kept in `fault`.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mainspring.delivery.address import is_loopback
from mainspring.delivery.call import Call, Reply, failed
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import InvalidInput, UnsafeTarget
from mainspring.testing.target import Answer

ANSWER_BYTES: Final = 65_536
ANYWHERE: Final = Guard(allow=("0.0.0.0/0", "::/0"))
"""For reading URLs: whether they may be called is decided elsewhere."""
NoAnswerKind = Literal["timeout", "lost", "unreachable"]


class MadeCall(Struct, frozen=True, kw_only=True):
    """A call as it was made. Header names in lower case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    at: datetime
    """In virtual time."""

    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)


class NoAnswer(Struct, frozen=True):
    """How a call can end without an answer.

    `timeout` and `lost`: the request was sent, and no answer came in time, or the connection broke: the receiver may
    have acted. `unreachable`: there was no connection, so nothing was sent.
    """

    kind: NoAnswerKind = "timeout"

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoAnswerKind):
            raise InvalidInput(f"Expected 'timeout', 'lost' or 'unreachable', got {self.kind!r:.100}")


Scripted = Answer | NoAnswer | Callable[[MadeCall], Answer | NoAnswer]


class OutsideWorld:
    """Makes the senders of an instance."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.calls: list[MadeCall] = []
        """All calls, in the order in which they were made."""
        self.fault: Exception | None = None
        """The first thing that went wrong in the test's own functions, until it is raised."""
        self._now = now
        self._scripts: dict[str, deque[Scripted]] = {}

    def __call__(self, *, guard: Guard, answer_bytes: int = ANSWER_BYTES, **options: Any) -> _Sender:
        return _Sender(self, guard, answer_bytes, Sender(guard=guard, answer_bytes=answer_bytes, **options))

    def answer(self, url: str, *answers: Scripted) -> None:
        """Answer calls to this URL, and to all below it, with these in turn; the last one stays. Replaces what was said
        about the URL before. How its host is written does not matter; a slash at its end does."""
        place = _place(url)
        if "?" in url:
            raise InvalidInput(
                f"Expected a URL without a query, got {url!r:.100}: a call is answered whatever its query"
            )
        if not answers:
            raise InvalidInput(f"Expected at least one answer for {url}, got none")
        for answer in answers:
            if callable(answer):
                _check_function(answer)
            else:
                _check(answer, "an Answer, a NoAnswer or a function that returns one")
        self._scripts[place] = deque(answers)

    def has_answer(self, url: str) -> bool:
        return self._script(url) is not None

    def record(self, call: Call) -> MadeCall:
        headers = {name.lower(): value for name, value in call.headers}
        made = MadeCall(method=call.method, url=call.url, headers=headers, body=call.body, at=self._now())
        self.calls.append(made)
        return made

    def reply(self, made: MadeCall, *, timeout_ms: int, answer_bytes: int) -> Reply:
        script = self._script(made.url)
        said: Scripted = Answer()
        if script is not None:
            said = script.popleft() if len(script) > 1 else script[0]
        try:
            answer = said if isinstance(said, Answer | NoAnswer) else said(made)
            _check(answer, "an Answer or a NoAnswer from the function that answers")
        except Exception as error:  # noqa: BLE001 - it is raised in the test
            self.fault = self.fault or error
            return failed("network", f"The test's function raised {error!r:.500}", sent=False, duration_ms=0)
        return _reply(answer, made.method, timeout_ms=timeout_ms, answer_bytes=answer_bytes)

    def raise_fault(self) -> None:
        """Tell the test, once."""
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault

    def _script(self, url: str) -> deque[Scripted] | None:
        """That of the longest URL that this one is below of."""
        place = _place(url)
        while "//" in place.rstrip("/"):
            if place in self._scripts:
                return self._scripts[place]
            place = place[:-1] if place.endswith("/") else place[: place.rindex("/") + 1]
        return None


class _Sender:
    def __init__(self, world: OutsideWorld, guard: Guard, answer_bytes: int, real: Sender) -> None:
        self._world = world
        self._guard = guard
        self._answer_bytes = answer_bytes
        self._real = real

    async def __aenter__(self) -> Self:
        await self._real.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._real.__aexit__(kind, error, trace)

    async def send(self, call: Call) -> Reply:
        try:
            self._guard.check_url(call.url)
        except (InvalidInput, UnsafeTarget) as error:
            return failed("refused", error.detail, sent=False, duration_ms=0)
        made = self._world.record(call)
        if is_loopback(urlsplit(call.url).hostname or "") and not self._world.has_answer(call.url):
            return await self._real.send(call)
        reply = self._world.reply(made, timeout_ms=call.timeout_ms, answer_bytes=self._answer_bytes)
        if call.sent is not None:
            call.sent()
        return reply


def _place(url: object) -> str:
    """A URL in its one spelling, without a query."""
    if not isinstance(url, str):
        raise InvalidInput(f"Expected a URL, got {url!r:.100}")
    target = ANYWHERE.check_url(url)
    return f"{target.scheme}://{target.host_header}{target.path_and_query.partition('?')[0]}"


def _check_function(function: Callable[..., object]) -> None:
    if inspect.iscoroutinefunction(function):
        raise InvalidInput(f"Expected a plain function, got the coroutine function {function.__name__!r}")


def _check(answer: object, expected: str) -> None:
    if not isinstance(answer, Answer | NoAnswer):
        raise InvalidInput(f"Expected {expected}, got {answer!r:.100}")
    if isinstance(answer, Answer) and answer.behaviour != "plain":
        raise InvalidInput(
            f"Expected a plain answer, got {answer.behaviour!r}: let a TargetServer answer so, or use NoAnswer"
        )


def _reply(answer: Answer | NoAnswer, method: str, *, timeout_ms: int, answer_bytes: int) -> Reply:
    if isinstance(answer, Answer) and answer.delay_seconds * 1000 >= timeout_ms:
        answer = NoAnswer("timeout")
    match answer:
        case NoAnswer("timeout"):
            return failed("timeout", f"No answer within {timeout_ms / 1000:g} s", sent=True, duration_ms=timeout_ms)
        case NoAnswer("lost"):
            return failed("network", "The connection broke before an answer came", sent=True, duration_ms=0)
        case NoAnswer():
            return failed("network", "The connection was refused", sent=False, duration_ms=0)
    body = b"" if method == "HEAD" else answer.body
    return Reply(
        status=answer.status,
        headers={name.lower(): value for name, value in answer.headers},
        body=body[:answer_bytes],
        truncated=len(body) > answer_bytes,
        problem="",
        detail="",
        sent=True,
        duration_ms=round(answer.delay_seconds * 1000),
    )
