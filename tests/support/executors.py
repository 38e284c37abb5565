"""Executors of a pool for the tests: in this process, or in one of their own that can be killed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from mainspring import crashpoint
from mainspring.config import Config
from mainspring.processes.executor import RemoteExecutor, reachable
from tests.support.running_server import COMMAND, clean_environment

LEASE_SECONDS = 1.5


@asynccontextmanager
async def executor(config: Config, pool: str = "far", **changes: int) -> AsyncIterator[RemoteExecutor]:
    """One in this process, which is a process of its own to the instance."""
    async with RemoteExecutor(msgspec.structs.replace(config, **changes), pool) as remote, reachable(remote):
        yield remote


@asynccontextmanager
async def executor_process(
    config: Config, pool: str = "far", *, crash_at: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    flags = ["--store", config.store, "--pool", pool, "--allow-loopback"]
    flags += ["--lease-seconds", str(LEASE_SECONDS), "--renew-seconds", "0.4"]
    environment = clean_environment() | ({crashpoint.VARIABLE: crash_at} if crash_at else {})
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "executor", *flags, stderr=asyncio.subprocess.PIPE, env=environment, cwd=config.data_dir
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(20):
            line = await process.stderr.readline()
        assert re.search(rf"executor {pool}/\S+ is ready at http://127".encode(), line), line
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
