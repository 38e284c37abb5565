"""What the receiver of a run gets: a pure function of job, run and attempt.

The bearer token of the configuration goes only to routes, that is to the service it was configured for; a job with a
URL of its own brings its own authorization. A repeat differs only in attempt, timestamp and signature: `webhook-id`,
`Idempotency-Key` and `X-Correlation-ID` stay the same for all attempts of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mainspring.delivery.call import Call
from mainspring.delivery.webhook import CORRELATION_ID, signed_headers
from mainspring.jobs.messages import RunKind
from mainspring.jobs.record import Definition, Job, Routing
from mainspring.kernel.backoff import max_attempts
from mainspring.wire.instants import to_instant, to_ms

UPCOMING: Final = 5
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})


class Trigger(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a run says about itself: the body of its request, unless the job has one, or what a handler gets."""

    job: str
    launch_id: str
    kind: RunKind
    scheduled_at: datetime
    previous_at: datetime | None
    """The instant of the run before this one."""
    next_at: tuple[datetime, ...]
    """The next five instants."""
    attempt: int
    correlation_id: str
    delivery_id: str


def trigger(
    job: Job,
    *,
    launch_id: str,
    kind: RunKind,
    instant: int,
    previous: int | None,
    upcoming: tuple[int, ...],
    attempt: int,
    delivery_id: str,
) -> Trigger:
    """`upcoming` are the next instants if they are known, else nothing."""
    return Trigger(
        job=job.name,
        launch_id=launch_id,
        kind=kind,
        scheduled_at=to_instant(instant),
        previous_at=None if previous is None else to_instant(previous),
        next_at=_instants(upcoming or tuple(next_instants(job, instant))),
        attempt=attempt,
        correlation_id=correlation_of(delivery_id),
        delivery_id=delivery_id,
    )


def correlation_of(delivery_id: str) -> str:
    """What a run sends as `X-Correlation-ID`, and as the id of its trace."""
    return delivery_id[-32:]


def next_instants(job: Job, instant: int) -> list[int]:
    definition = job.definition
    after = instant if definition.starts_at is None else max(instant, definition.starts_at - 1)
    until = 2**62 if definition.ends_at is None else definition.ends_at
    return job.calendar.between(after, until, limit=UPCOMING)


def request(
    job: Job,
    said: Trigger,
    routing: Routing,
    secrets: Sequence[str],
    *,
    body: Raw | UnsetType,
    fence: int,
    now: int,
    span_id: str,
) -> Call:
    """The request of one attempt. `body` stands in for the job's own, if there is one."""
    definition = job.definition
    own = {name.lower(): value for name, value in definition.headers.items()} if definition.headers else {}
    content = _body(definition, said, body, own.get("content-type", ""))
    headers = [
        *signed_headers(secrets, delivery_id=said.delivery_id, body=content, attempt=said.attempt, now=now),
        ("mainspring-job", job.name),
        ("mainspring-launch-id", said.launch_id),
        ("mainspring-max-attempts", str(max_attempts(job.policy))),
        ("mainspring-scheduled-at", _listed((said.scheduled_at,))),
        ("mainspring-next-at", _listed(said.next_at)),
        ("mainspring-fence", str(fence)),
        ("traceparent", f"00-{said.correlation_id}-{span_id}-01"),
    ]
    if said.previous_at is not None:
        headers.append(("mainspring-previous-at", _listed((said.previous_at,))))
    if CORRELATION_ID not in own:
        headers.append((CORRELATION_ID, said.correlation_id))
    if content and "content-type" not in own:
        headers.append(("content-type", "application/json"))
    if definition.url is None and routing.token and "authorization" not in own:
        headers.append(("authorization", f"Bearer {routing.token}"))
    return Call(
        method=definition.method,
        url=job.url,
        headers=(*headers, *definition.headers.items()),
        body=content,
        timeout_ms=round(definition.timeout_seconds * 1000),
    )


# Jobs that are due at the same moment mostly share what came before and what comes next.
@lru_cache(maxsize=1024)
def _instants(upcoming: tuple[int, ...]) -> tuple[datetime, ...]:
    return tuple(map(to_instant, upcoming))


@lru_cache(maxsize=1024)
def _listed(instants: tuple[datetime, ...]) -> str:
    return ",".join(str(to_ms(instant)) for instant in instants)


def _body(definition: Definition, said: Trigger, stand_in: Raw | UnsetType, content_type: str) -> bytes:
    given = definition.body if stand_in is UNSET else stand_in
    if given is UNSET:
        return b"" if definition.method in _WITHOUT_BODY else msgspec.json.encode(said)
    data = bytes(given)
    if content_type and "json" not in content_type.lower() and data.startswith(b'"'):
        return msgspec.json.decode(data, type=str).encode()  # text of another kind, written as a JSON string
    return data
