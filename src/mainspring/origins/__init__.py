"""Origins: classes whose state survives the program, and whose methods get the results of the fetches they asked for.

    origin        `Origin`, what users write, and `proxy_fetch`
    continuation  what is to happen with a result, as JSON
    exchange      `RequestSync`, `ResponseSync`
    services      what origins reach as `self.svc.<name>`
    values        which values can be kept
    document      the one record of an origin
    units         runs a method and commits what came of it
    outbox        fetches that were asked for and are to be created
    collecting    results that others have left to this program
    runtime       the origins of one program

A result and its effect on the state are one write: whatever crashes, each result takes effect exactly once.
"""

from __future__ import annotations

from mainspring.fetches.errors import (
    FetchCancelled,
    FetchError,
    FetchNetworkError,
    FetchOverloaded,
    FetchRefused,
    FetchTimeout,
    FetchUnreadable,
    FetchWatchdog,
)
from mainspring.origins.continuation import RESULT, Continuation
from mainspring.origins.document import State
from mainspring.origins.origin import Origin, proxy_fetch
from mainspring.origins.request import Headers, RequestSync, ResponseSync
from mainspring.origins.runtime import OriginRef
from mainspring.origins.services import ServiceFactory

__all__ = [
    "RESULT",
    "Continuation",
    "FetchCancelled",
    "FetchError",
    "FetchNetworkError",
    "FetchOverloaded",
    "FetchRefused",
    "FetchTimeout",
    "FetchUnreadable",
    "FetchWatchdog",
    "Headers",
    "Origin",
    "OriginRef",
    "RequestSync",
    "ResponseSync",
    "ServiceFactory",
    "State",
    "proxy_fetch",
]
