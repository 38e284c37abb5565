"""An instance with little memory for fetches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mainspring.cluster.instance import Instance
from mainspring.config import Config

LIMIT = 4_000_000


@asynccontextmanager
async def running(tmp_path: Path, store: str = "memory://", **settings: Any) -> AsyncIterator[Instance]:
    config = Config(
        allow_loopback=True,
        store=store,
        data_dir=str(tmp_path),
        drain_seconds=0.1,
        fetch_answer_bytes=100_000,
        fetch_memory_bytes=LIMIT,
        **settings,
    )
    async with Instance(config) as instance:
        yield instance
