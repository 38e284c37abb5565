"""The programs without an event loop do what they say."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from tests.support.examples import EXAMPLES, SECONDS, line_with, running
from tests.support.source_tree import ROOT

SYNC = EXAMPLES / "sync"


@pytest.mark.slow
async def test_the_script_reminds_and_ends(tmp_path: Path) -> None:
    async with running(sys.executable, str(SYNC / "script.py"), str(tmp_path / "app.db")) as process:
        await line_with(process, "Ann: the kettle")
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0


@pytest.mark.slow
async def test_the_first_program_of_the_guide_reminds_and_ends(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "sync.md").read_text()
    block = re.search(r"^```python\n(.*?)^```", guide, re.DOTALL | re.M)
    assert block is not None
    (tmp_path / "program.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{block[1]}")
    async with running(sys.executable, str(tmp_path / "program.py")) as process:
        await line_with(process, "remind Ann")
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("program", ["flask_app.py", "django_app.py"])
async def test_a_web_application_answers_at_once_and_reminds_later(program: str, tmp_path: Path) -> None:
    command = (sys.executable, str(SYNC / program), "0", str(tmp_path / "app.db"))
    async with running(*command, PYTHONUNBUFFERED="1") as process:
        line = await line_with(process, "http://127.0.0.1:")
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None
        async with httpx.AsyncClient(base_url=found[0]) as http:
            created = (await http.post("/orders/7")).json()
            assert (created["timerId"], created["payload"], created["state"]) == (
                "order-7",
                {"order": "7"},
                "scheduled",
            )
            assert "dueAt" in (await http.get("/orders/7")).json()
            await line_with(process, "order 7 is still open")
            async with asyncio.timeout(SECONDS):
                while "reminded" not in (shown := (await http.get("/orders/7")).json()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert len(shown["reminded"]) == 1


class StandIn:
    """Celery as far as the example uses it, for where it is not installed."""

    def __init__(self, *names: str, **settings: str) -> None:
        self.sent: list[tuple[object, ...]] = []

    def task(self, function: Any) -> Any:
        function.apply_async = lambda arguments, task_id: self.sent.append((function.__name__, *arguments, task_id))
        return function

    def connect(self, function: Any) -> Any:
        return function


def test_the_celery_application_creates_timers_at_rest_and_sends_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    is_there = importlib.util.find_spec("celery") is not None
    if not is_there:
        signals = SimpleNamespace(worker_process_init=StandIn(), worker_process_shutdown=StandIn())
        monkeypatch.setitem(sys.modules, "celery", cast(ModuleType, SimpleNamespace(Celery=StandIn)))
        monkeypatch.setitem(sys.modules, "celery.signals", cast(ModuleType, signals))
    monkeypatch.setenv("STORE", "memory://")
    module = SimpleNamespace(**runpy.run_path(str(SYNC / "celery_app.py"), run_name="celery_app"))
    module.begin()
    module.place("7")
    timer = module.ms.timers.get("order-7")
    assert timer.payload == {"order": "7"}
    module.end()
    if not is_there:
        module.send(SimpleNamespace(payload=timer.payload, delivery_id=timer.delivery_id))
        assert module.app.sent == [("remind", "7", timer.delivery_id)]
