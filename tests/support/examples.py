"""The programs in examples/, run as processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.source_tree import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 30


@asynccontextmanager
async def running(*command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its own group, ended with all its children at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def line_with(process: asyncio.subprocess.Process, text: str) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        while line := (await process.stdout.readline()).decode():
            if text in line:
                return line
    raise AssertionError(f"the output ended without {text!r}")
