"""Celery as its documentation suggests: tasks with an `eta`, no results, JSON. Runs in a virtualenv of its own.

    celery --app celery_program worker              the worker; it says on its output when it is ready
    python celery_program.py                        the client; it obeys lines as `program.mjs` says

`REDIS_URL` names the broker. Either ends at the end of its input.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlsplit

from celery import Celery, signals

CLIENTS = 64
DAY_MS = 86_400_000
DUE, FAR = "due", "far"
"""Two queues: a worker takes all tasks with an eta into its memory, so nobody consumes those that are a day ahead."""
READY = b'{"count":0,"seconds":0}\n'

app = Celery("peers", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, task_default_queue=DUE, broker_pool_limit=CLIENTS)
_kept: dict[str, http.client.HTTPConnection] = {}
"""Each process of the pool does one task at a time."""


def call(url: str, execute_at: int, payload: dict[str, str]) -> None:
    """The call that a task is about, over a connection that is kept."""
    place = urlsplit(url)
    if place.netloc not in _kept:
        _kept[place.netloc] = http.client.HTTPConnection(place.netloc)
    headers = {"content-type": "application/json", "mainspring-scheduled-at": str(execute_at)}
    _kept[place.netloc].request("POST", place.path, json.dumps(payload), headers)
    answer = _kept[place.netloc].getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"Expected 200, got {answer.status}")


task = app.task(call, name="call")


def _send(url: str, execute_at: int) -> None:
    task.apply_async(
        (url, execute_at, {"order": "A-1001", "kind": "reminder"}),
        eta=datetime.fromtimestamp(execute_at / 1000, UTC),
        queue=FAR if execute_at > _now_ms() + DAY_MS // 2 else DUE,
    )


def _now_ms() -> int:
    return round(time.time() * 1000)


def create(seconds: str, url: str) -> int:
    """One task per call, so many callers at once, due a day ahead."""
    ends_at = time.perf_counter() + float(seconds)

    def caller(_: int) -> int:
        count = 0
        while time.perf_counter() < ends_at:
            _send(url, _now_ms() + DAY_MS)
            count += 1
        return count

    with ThreadPoolExecutor(CLIENTS) as callers:
        return sum(callers.map(caller, range(CLIENTS)))


def bulk(count: str, first: str, rate: str, url: str) -> int:
    """Tasks due so many a second from an instant on; all at that instant if the rate is 0. There is no bulk."""
    step_ms = 1000 / int(rate) if int(rate) else 0
    for index in range(int(count)):
        _send(url, int(first) + int(index * step_ms))
    return int(count)


def _answer_lines() -> None:
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    for line in sys.stdin:
        command, *words = line.split()
        started_at = time.perf_counter()
        count = create(*words) if command == "create" else bulk(*words)
        print(json.dumps({"count": count, "seconds": time.perf_counter() - started_at}), flush=True)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _say_ready(**_: object) -> None:
    os.write(1, READY)  # the worker has replaced sys.stdout
    threading.Thread(target=_end_with_input, daemon=True).start()


if __name__ == "__main__":
    _answer_lines()
