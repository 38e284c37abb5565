"""The submissions example as a process that dies when told: python -m tests.idempotency.http.consumer SETTINGS CRASH

SETTINGS are those of the application, as JSON, with `keys`, the path of the idempotency store, and `runs`, a file that
gets a line for each run of the pipeline. CRASH is one of `never`, `before_store`, `before_record` and `before_ack`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from faststream import BaseMiddleware
from submissions.application import Settings, build
from submissions.database import Database
from submissions.pipeline import Pipeline
from submissions.submission import Outcome

from mainspring.idempotency import SQLiteStore


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class DiesBeforeAck(BaseMiddleware[Any, Any]):
    async def after_processed(self, *_: object) -> bool:
        die()


def main(given: str, crash: str) -> None:
    settings = json.loads(given)
    store = SQLiteStore(settings.pop("keys"))
    runs = Path(settings.pop("runs"))
    process = Pipeline.process

    def note(insured: str) -> None:
        with runs.open("a") as file:
            file.write(f"{insured}\n")

    async def processed(pipeline: Pipeline, document: dict[str, Any]) -> Outcome:
        note(document["insured"])
        outcome = await process(pipeline, document)
        if crash == "before_record":
            die()
        return outcome

    Pipeline.process = processed  # type: ignore[assignment,method-assign]
    if crash == "before_store":
        Database.store = die  # type: ignore[assignment,method-assign]
    app = build(Settings(**settings), store, middlewares=[DiesBeforeAck] if crash == "before_ack" else [])
    asyncio.run(app.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
