"""Why a fetch brought no response, as errors for programs that would rather catch than compare.

    FetchError
    ├── FetchNetworkError     no connection, or it was lost
    ├── FetchTimeout          no whole response in time
    ├── FetchUnreadable       what came back was not HTTP
    ├── FetchWatchdog         nobody brought a result; whoever made the call may be gone
    ├── FetchRefused          the address may not be called
    ├── FetchOverloaded       nobody had room to make the call
    └── FetchCancelled        somebody cancelled it

`definite` says of each whether the target has certainly not acted. Where it is false, look before you try again.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mainspring.errors import MainspringError


class FetchError(MainspringError):
    """The fetch brought no response."""

    code = "fetch"
    kind: ClassVar[str] = ""

    def __init__(self, detail: str = "", *, definite: bool = False, req_id: str = "") -> None:
        super().__init__(detail)
        self.definite = definite
        """The target has certainly not acted on it."""
        self.req_id = req_id


class FetchNetworkError(FetchError):
    """There was no connection, or it was lost."""

    code = "fetch_network"
    kind = "network"


class FetchTimeout(FetchError):
    """There was no whole response in time."""

    code = "fetch_timeout"
    kind = "timeout"


class FetchUnreadable(FetchError):
    """What came back was not HTTP."""

    code = "fetch_unreadable"
    kind = "unreadable"


class FetchWatchdog(FetchError):
    """Nobody brought a result in time."""

    code = "fetch_watchdog"
    kind = "watchdog"


class FetchRefused(FetchError):
    """The address may not be called."""

    code = "fetch_refused"
    kind = "refused"


class FetchOverloaded(FetchError):
    """Nobody had room to make the call."""

    code = "fetch_overloaded"
    kind = "overloaded"


class FetchCancelled(FetchError):
    """The fetch was cancelled."""

    code = "fetch_cancelled"
    kind = "cancelled"


_BY_KIND: Final = {kind.kind: kind for kind in FetchError.__subclasses__()}


def fetch_error(kind: str, message: str, *, definite: bool, req_id: str) -> FetchError:
    """The error of a kind; one that is newer than this program is a plain `FetchError`."""
    return _BY_KIND.get(kind, FetchError)(message, definite=definite, req_id=req_id)
