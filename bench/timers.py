"""The timers that the benchmarks create: a small payload, one label, all to one destination."""

from __future__ import annotations

import time

from bench.load import post, run_load
from bench.processes import TOKEN, Running
from mainspring.model import Detail, Namespace, Timer

FAR_MS = 86_400_000
"""So far ahead are timers that are not to fire during a benchmark."""
BATCH = 1000
NOWHERE = "http://127.0.0.1:9/callback"
"""The destination of timers that are not to fire."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def create_body(timer_id: str, execute_at: int, url: str) -> bytes:
    return (
        b'{"timerId":"%b","executeAt":%d,"callbackUrl":"%b",'
        b'"payload":{"order":"A-1001","kind":"reminder"},"labels":{"tenant":"acme"}}'
    ) % (timer_id.encode(), execute_at, url.encode())


def create_request(timer_id: str, execute_at: int, url: str) -> bytes:
    return post("/v1/timers/create", create_body(timer_id, execute_at, url), token=TOKEN)


def batch_requests(name: str, instants: list[int], url: str, *, size: int = BATCH) -> list[bytes]:
    """Requests that create a numbered timer for each instant, `size` at a time."""
    return batches_of([f"{name}-{index}" for index in range(len(instants))], instants, url, size=size)


def batches_of(ids: list[str], instants: list[int], url: str, *, size: int = BATCH) -> list[bytes]:
    bodies = [create_body(timer_id, instant, url) for timer_id, instant in zip(ids, instants, strict=True)]
    return [
        post("/v1/timers/create-batch", b'{"timers":[' + b",".join(bodies[start : start + size]) + b"]}", token=TOKEN)
        for start in range(0, len(bodies), size)
    ]


def pending_timer(namespace: Namespace, timer_id: str, instant: int) -> Timer:
    """The row that a create of the same timer makes."""
    key = namespace.key_of(timer_id)
    return Timer(
        shard_id=key.shard_id,
        uuid=key.uuid,
        namespace=namespace.name,
        timer_id=timer_id,
        due_at=instant,
        detail=Detail(
            execute_at=instant,
            callback_url=NOWHERE,
            delivery_id=f"msg_{key.uuid}",
            created_at=instant - FAR_MS,
            updated_at=instant - FAR_MS,
            labels={"tenant": "acme"},
        ),
        payload='{"order":"A-1001","kind":"reminder"}',
    )


async def create_all(target: Running, requests: list[bytes], *, connections: int = 4, seconds: float = 300.0) -> float:
    """Send the requests, all of which must succeed. Returns how many were sent per second."""
    result = await run_load(
        "127.0.0.1",
        target.port,
        requests.__getitem__,
        min(connections, len(requests)),
        seconds,
        requests=len(requests),
    )
    if result.errors or result.requests != len(requests):
        raise RuntimeError(f"Expected {len(requests)} requests to succeed, got {result}")
    return result.rate
