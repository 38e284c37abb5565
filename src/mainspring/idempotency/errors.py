"""What can go wrong with a key, as subclasses of the errors of the whole package.

InvalidInput
└── KeyReuse          the key was used before with a different payload
Conflict
├── InProgress        the work is being done right now
└── LostClaim         the work was done, but its claim had passed to somebody else in the meantime
MainspringError
├── UnknownOutcome    the work was started and it is unknown how it ended
└── NotRecorded       the work was done, but its outcome could not be recorded
"""

from __future__ import annotations

from mainspring.errors import Conflict, InvalidInput, MainspringError


class KeyReuse(InvalidInput):
    """The idempotency key was used before with a different payload."""

    code = "key_reuse"

    def __init__(self, detail: str = "", *, key: str = "") -> None:
        super().__init__(detail)
        self.key = key


class InProgress(Conflict):
    """The same work is in progress."""

    code = "in_progress"
    retryable = True

    def __init__(self, detail: str = "", *, key: str = "", retry_after: int = 1) -> None:
        """`retry_after` is a guess, in seconds: as long again as the work has taken so far, within bounds."""
        super().__init__(detail)
        self.key = key
        self.retry_after = retry_after


class LostClaim(Conflict):
    """The work was done, but its claim had passed to somebody else, whose outcome stands."""

    code = "lost_claim"

    def __init__(self, detail: str = "", *, key: str = "", result: object = None) -> None:
        super().__init__(detail)
        self.key = key
        self.result = result


class UnknownOutcome(MainspringError):
    """The work was started, and it is unknown whether it was done.

    Raised to callers of a key whose holder stopped responding. Work may also raise it when it cannot tell what it has
    done (a call that timed out): the key is then recorded as unknown instead of being released.
    """

    code = "unknown_outcome"
    outcome_unknown = True

    def __init__(self, detail: str = "", *, key: str = "", started_at: int | None = None) -> None:
        """`started_at` is in milliseconds since the epoch."""
        super().__init__(detail or "The work was begun, and nobody knows whether it was done.")
        self.key = key
        self.started_at = started_at


class NotRecorded(MainspringError):
    """The work was done, but its outcome could not be recorded."""

    code = "not_recorded"

    def __init__(self, detail: str = "", *, key: str = "", result: object = None) -> None:
        """`result` is what the work returned: the caller who gets it may use it."""
        super().__init__(detail)
        self.key = key
        self.result = result


def reused(key: str) -> KeyReuse:
    return KeyReuse(f"The key {key!r} was first used with a different payload", key=key)
