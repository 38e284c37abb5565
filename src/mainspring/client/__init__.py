"""The Python SDK: `AsyncClient` and `Client` for programs that make calls, `read_callback` for those that receive them.

    with Client() as client:
        client.timers.create("remind-7", callback_url="https://example.com/remind", delay_seconds=300)

Both clients have the same methods; the sync one is generated from the async one. Errors are those of
`mainspring.errors`. Messages and views are those of the HTTP API.

    _async     the client for event loops; `_sync` is generated from it
    arguments  a payload, for messages that the caller puts together
    transport  how requests get to the network
    reply      what an answer means: a value, an error, or to be sent again        pure
    discovery  where the server is, and which token to use
    health     what a server reports about itself
    callback   the receiving end of a timer
"""

from mainspring.client._async.client import AsyncClient
from mainspring.client._sync.client import Client
from mainspring.client.arguments import to_payload
from mainspring.client.callback import Callback, callback_answer, read_callback
from mainspring.client.health import Health, Readiness
from mainspring.fetches.arguments import FetchesWhere, FetchFields
from mainspring.fetches.errors import FetchError
from mainspring.fetches.messages import FetchResult, FetchView
from mainspring.jobs.arguments import JobFields, JobsWhere, RunsWhere
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.messages import JobView, RunView
from mainspring.model import Delivery, Result, RetryPolicy, State
from mainspring.timers.arguments import HistoryWhere, Where
from mainspring.timers.messages import CreateTimer, TimerView

__all__ = [
    "AsyncClient",
    "Callback",
    "Client",
    "CreateTimer",
    "Delivery",
    "Dst",
    "FetchError",
    "FetchFields",
    "FetchResult",
    "FetchView",
    "FetchesWhere",
    "Health",
    "HistoryWhere",
    "JobFields",
    "JobView",
    "JobsWhere",
    "Readiness",
    "Result",
    "RetryPolicy",
    "RunView",
    "RunsWhere",
    "State",
    "TimerView",
    "Where",
    "callback_answer",
    "read_callback",
    "to_payload",
]
