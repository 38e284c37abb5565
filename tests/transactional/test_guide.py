"""The programs of the guide and the example do what they say."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from mainspring import Mainspring
from mainspring.testing.target import TargetServer
from tests.servers.postgresql import PostgreSQL
from tests.support.examples import EXAMPLES, SECONDS, line_with, running
from tests.support.source_tree import ROOT

GUIDE = (ROOT / "docs" / "guides" / "transactions.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
PROGRAMS = [block for block in BLOCKS if "\nimport" in block]


async def works(program: str, place: str, store: str) -> None:
    async with TargetServer() as target, Mainspring(store, allow_loopback=True, look_seconds=0.1) as ms:
        await ms.namespaces.create("shop")
        here = "MAINSPRING_ALLOW_LOOPBACK=true"
        async with running("env", here, sys.executable, "-c", program, place, f"{target.url}/remind") as process:
            output, _ = await process.communicate()
            assert process.returncode == 0, output.decode()
        await target.wait_for(1)
        assert b'"payload":{"purchase":1}' in target.requests[0].body


async def test_the_program_with_sqlite3_works_as_written(tmp_path: Path) -> None:
    path = f"{tmp_path}/shop.db"
    await works(PROGRAMS[0], path, f"sqlite:///{path}")


async def test_the_program_with_sqlalchemy_works_as_written(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    await works(PROGRAMS[1], url.replace("postgresql:", "postgresql+asyncpg:"), url)


async def test_the_example_keeps_order_and_reminder_together(tmp_path: Path) -> None:
    async with running(sys.executable, str(EXAMPLES / "order_with_reminder.py"), str(tmp_path / "app.db")) as process:
        await line_with(process, "order-2: the card was declined")
        await line_with(process, "reminder: order-1 is waiting")
        await line_with(process, "orders: ['order-1'], other reminders: []")
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
