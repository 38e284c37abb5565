"""Origins: classes whose state outlives the program, and whose methods receive the results of fetches they requested.

    origin        `Origin`, what users write, and `proxy_fetch`
    continuation  what to do with a result, as JSON
    request       `RequestSync`, `ResponseSync`
    services      what origins use as `self.svc.<name>`
    values        which values can be kept
    document      the one record of an origin
    units         runs a method and commits what came of it
    outbox        fetches that were requested and are to be created
    collector     results that others have left for this program
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
