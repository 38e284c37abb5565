"""Timers, keys and attempts for the conformance suites, with every field settable."""

from __future__ import annotations

from hashlib import blake2b

from mainspring.model import Attempt, Detail, Result, State, Timer, TimerKey
from mainspring.store import Put, Store, Verdict

NOW = 1_800_000_000_000

ODD_TEXTS = (
    "plain",
    "with 'single' and \"double\" quotes",
    "percent % and under_score and back\\slash",
    "semi; DROP TABLE timers; --",
    '$.path[0]."key" and {brace} ${jndi:ldap}',
    "line\nbreak\ttab\r\x00nul\x7f",
    "ünïcödé 日本語 العربية",
    "emoji 👩‍👩‍👧‍👦🏳️‍🌈",
    "\u2028\u2029\ufeff\uffff\U0010ffff",
    " leading and trailing ",
)


def key_of(name: str, *, shard_id: int = 0) -> TimerKey:
    return TimerKey(shard_id, blake2b(name.encode(), digest_size=16).hexdigest())


def timer(
    name: str,
    *,
    shard_id: int = 0,
    due_at: int = NOW,
    uuid: str | None = None,
    namespace: str = "default",
    state: State = State.SCHEDULED,
    labels: dict[str, str] | None = None,
    payload: str | None = None,
    attempts: int = 0,
    generation: int = 1,
) -> Timer:
    key = key_of(name, shard_id=shard_id)
    return Timer(
        shard_id=shard_id,
        uuid=uuid or key.uuid,
        namespace=namespace,
        timer_id=name,
        due_at=due_at,
        state=state,
        attempts=attempts,
        generation=generation,
        payload=payload,
        detail=Detail(
            execute_at=due_at,
            callback_url="https://example.com/",
            delivery_id=f"msg_{key.uuid}",
            created_at=NOW,
            updated_at=NOW,
            labels=labels or {},
        ),
    )


def attempt(number: int = 1, *, started_at: int = NOW, generation: int = 1, detail: str = "") -> Attempt:
    return Attempt(
        attempt=number,
        generation=generation,
        delivery_id="msg_1",
        scheduled_at=NOW,
        started_at=started_at,
        outcome=Result.SUCCEEDED,
        status=200,
        detail=detail,
    )


async def create(store: Store, *timers: Timer) -> list[Timer]:
    """Write new timers, and give them back as they are stored."""
    verdicts = await store.write([Put(timer, 0) for timer in timers])
    assert verdicts == [Verdict.APPLIED] * len(timers)
    return list(timers)
