"""Celery with Mainspring inside: a task that runs at an instant, which can be moved or cancelled until then.

    celery --app examples.sync.celery_app worker      # runs the tasks; its processes create timers, and run none
    python -m examples.sync.celery_app                # runs the timers, each of which sends a task

Unlike `eta` and `countdown`, a timer is in the database, and not in a worker's memory or a broker's queue.
"""

import os
import signal

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from mainspring import DueTimer, SyncMainspring

app = Celery("orders", broker=os.environ.get("BROKER", "redis://127.0.0.1/0"))
ms = SyncMainspring(os.environ.get("STORE", "sqlite:///app.db"))


@app.task
def remind(order: str) -> None:
    print(f"order {order} is still open", flush=True)


@app.task
def place(order: str) -> None:
    ms.timers.create(f"order-{order}", delay_seconds=3600, handler="send", payload={"order": order})


@ms.handler("send")
def send(timer: DueTimer) -> None:
    """The id of the delivery is that of the task: a repeat can be told from another reminder."""
    remind.apply_async((timer.payload["order"],), task_id=timer.delivery_id)


@worker_process_init.connect
def begin(**_: object) -> None:
    ms.start(at_rest=True)  # after the fork, in each process


@worker_process_shutdown.connect
def end(**_: object) -> None:
    ms.stop()


if __name__ == "__main__":
    with ms:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
