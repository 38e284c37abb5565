"""Celery: a task that is delivered twice is done once.

    pip install celery
    python examples/idempotency/celery_tasks.py

With `task_acks_late` a task whose worker dies is delivered again; without it, it is lost. What makes the second
delivery harmless is the key. Work that is in progress in another worker is tried again later, and so is work whose
claim could not be written. `UnknownOutcome` is not tried again: it fails the task, and somebody decides, with
`charge.run.processor`.

The store is made before Celery forks its workers, and first used after.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from celery import Celery  # type: ignore[import-not-found, import-untyped, unused-ignore]

from mainspring.errors import StoreUnavailable
from mainspring.idempotency import InProgress, SQLiteStore, idempotent

Order = dict[str, object]

directory = TemporaryDirectory()
app = Celery("shop", broker=sys.argv[1] if len(sys.argv) > 1 else "memory://")
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, task_always_eager=len(sys.argv) < 2)
charges: list[object] = []


@app.task(autoretry_for=(InProgress, StoreUnavailable), retry_backoff=True, max_retries=None)  # type: ignore[untyped-decorator, unused-ignore]
@idempotent(SQLiteStore(Path(directory.name) / "shop.db"), key=lambda order: str(order["id"]), wait_seconds=0)
def charge(order: Order) -> str:
    charges.append(order["id"])
    return f"receipt of {order['id']}"


if __name__ == "__main__":
    for delivery in range(2):
        print(f"delivery {delivery + 1}: {charge.delay({'id': 17, 'cents': 1000}).get()}")
    print(f"order 17 was charged {charges.count(17)} times")
