"""Every example does what it says, and so does the tutorial."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainspring.client import Client
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.call import Call
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.delivery.signatures import new_secret
from mainspring.model import Result
from mainspring.namespaces.messages import CreateNamespace
from mainspring.testing.target import TargetServer
from mainspring.timers.messages import AttemptView, CreateTimer, ListHistory
from tests.support.examples import EXAMPLES, SECONDS, line_with, running
from tests.support.running_server import running_server
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow  # real processes take their time


async def test_the_library_example_reminds(tmp_path: Path) -> None:
    async with running(sys.executable, str(EXAMPLES / "library.py"), str(tmp_path / "app.db")) as process:
        await line_with(process, "Ann: the kettle")
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0


async def test_the_accounts_example_comes_to_its_end_although_it_was_killed(tmp_path: Path) -> None:
    command = (sys.executable, str(EXAMPLES / "accounts.py"), str(tmp_path / "accounts.db"))
    async with running(*command) as first:
        await line_with(first, "ann: asked the bank")
    async with running(*command) as second:
        assert await line_with(second, "ann: open") == "ann: open, balance 100\n"
        async with asyncio.timeout(SECONDS):
            assert await second.wait() == 0


async def recorded(instance: Instance, namespace: str, timer_id: str) -> tuple[AttemptView, ...]:
    """The attempts of a timer, once there are any: the record follows the answer of the receiver."""
    async with asyncio.timeout(SECONDS):
        while True:
            page = await instance.timers.history(ListHistory(namespace=namespace, timer_id=timer_id))
            if page.attempts:
                return page.attempts
            await asyncio.sleep(0.01)


async def test_the_receiver_example_does_the_work_of_a_delivery_once_and_refuses_forgeries(tmp_path: Path) -> None:
    secret = new_secret(os.urandom(32))
    command = (sys.executable, str(EXAMPLES / "receiver.py"), "0", secret, str(tmp_path / "receiver.db"))
    config = Config(allow_loopback=True, store=f"sqlite:///{tmp_path / 'mainspring.db'}")
    async with running(*command) as receiver, Instance(config) as instance:
        url = (await line_with(receiver, "receiving at")).split()[-1]
        await instance.namespaces.create(CreateNamespace(name="shop", secret=secret))
        created = CreateTimer(namespace="shop", timer_id="t1", delay_seconds=0, callback_url=url)
        delivery_id = (await instance.timers.create(created)).delivery_id
        assert await line_with(receiver, "done:") == f"done: {delivery_id}\n"
        assert [attempt.outcome for attempt in await recorded(instance, "shop", "t1")] == [Result.SUCCEEDED]
        async with Sender(guard=Guard(allow_loopback=True)) as sender:
            assert (await sender.send(Call("POST", url, (("webhook-id", "msg_1"),), b"{}", 5000))).status == 401


async def test_the_payments_example_takes_each_result_once_and_knows_what_may_have_been_paid(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with running_server(tmp_path / "server") as server, Client(server.url, server.token) as client:
        secret = client.namespaces.get("default").secret
        command = (sys.executable, str(EXAMPLES / "payments.py"), "0", secret, server.url, server.token)
        async with (
            TargetServer() as bank,
            running(*command, str(tmp_path / "payments.db")) as payments,
            Sender(guard=Guard(allow_loopback=True)) as sender,
        ):
            url = (await line_with(payments, "receiving at")).split()[-1]
            for order, path in ((1, "/"), (2, "/status/402"), (3, "/reset")):
                body = json.dumps({"order": order, "url": bank.url + path}).encode()
                assert (await sender.send(Call("POST", url + "/pay", (), body, 5000))).status == 202
                assert await line_with(payments, "taken:") == f"taken: payment-{order}\n"
            orders = json.loads((await sender.send(Call("GET", url + "/orders", (), b"", 5000))).body)
            assert orders == {"1": "paid", "2": "declined", "3": "check with the bank"}
            assert (await sender.send(Call("POST", url + "/results", (), b"{}", 5000))).status == 401


async def test_the_payments_example_waits_for_its_server(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with running_server(tmp_path / "server") as server, Client(server.url, server.token) as client:
        secret = client.namespaces.get("default").secret
    port = free_ports()[0]
    there = f"http://127.0.0.1:{port}"
    command = (sys.executable, str(EXAMPLES / "payments.py"), "0", secret, there, server.token)
    async with (
        TargetServer() as bank,
        running(*command, str(tmp_path / "payments.db")) as payments,
        Sender(guard=Guard(allow_loopback=True)) as sender,
    ):
        url = (await line_with(payments, "receiving at")).split()[-1]
        body = json.dumps({"order": 1, "url": bank.url + "/"}).encode()
        assert (await sender.send(Call("POST", url + "/pay", (), body, 5000))).status == 202
        await line_with(payments, "Mainspring has not accepted payment-1 yet")
        with running_server(tmp_path / "server", "", "--port", str(port)):
            assert await line_with(payments, "taken:") == "taken: payment-1\n"


# --- the tutorial -----------------------------------------------------------------------------------------


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE | re.DOTALL)


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


async def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    """Blocks that begin with `# Terminal` are left running; the others must end well."""
    api, receiver = free_ports()
    environment = {
        "MAINSPRING_PORT": str(api),
        "MAINSPRING_URL": f"http://127.0.0.1:{api}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        for block in blocks():
            text = block.replace("8700", str(api)).replace("8712", str(receiver))
            text = text.replace("make serve", "exec mainspring serve")
            script = f"set -euo pipefail; cd '{tmp_path}'\n{text}"
            started = await stack.enter_async_context(running("bash", "-c", script, **environment))
            if block.startswith("# Terminal"):
                await line_with(started, "ready at" if "make serve" in block else "Receiving at")
            else:
                output, _ = await started.communicate()
                assert started.returncode == 0, f"{block}\n{output.decode()}"
