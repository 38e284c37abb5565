"""A trial on one machine: a simulated platform and the cart, each a process of its own.

A cart that is killed is started again, as a process manager would do; the platform knows what it was asked meanwhile.
Neither outlives the demo, however that ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from telecom_cart.shutdown import on_end

ATTEMPT_SECONDS: Final = 8
START_SECONDS: Final = 60
STOP_SECONDS: Final = 15

TRIALS: Final = """
The cart    {cart}   with a page: open it in a browser
The shop    {simulator}/_sim   what can be done with the simulated platform

Three trials. Paste this first, in another terminal:

  CARTS={cart}/v1/carts SHOP={simulator}/_sim JSON='Content-Type: application/json'
  PHONE='{{"productId": "phone-1", "name": "Phone", "type": "device", "price": 79900}}'
  add() {{ curl -s -o /dev/null $CARTS/$1/items -H "$JSON" -d "$PHONE"; }}
  checkout() {{ curl -s -w '\\n' -X POST $CARTS/$1/checkout; }}
  restarted() {{ until curl -s -o /dev/null {cart}/health; do sleep 1; done; }}
  orders() {{ curl -s $SHOP/ledger | grep -o '"number":"[^"]*","reference":"[^"]*"'; }}

1. The platform forgets the basket, then you check out. It is made again, with everything in it.

  add ann; sleep 1; curl -s -o /dev/null $SHOP/expire -d '{{}}'
  checkout ann; orders

2. The platform orders, and its reply is lost. The cart asks what became of it: one order, not two.

  add bob; curl -s -o /dev/null $SHOP/faults -d '{{"verb": "checkout", "kind": "applyThenDrop"}}'
  checkout bob; checkout bob; orders

3. The cart is killed while the platform orders. It is started again here, and finds out.

  add cid; curl -s -o /dev/null $SHOP/faults -d '{{"verb": "checkout", "kind": "delay", "seconds": 4}}'
  checkout cid & sleep 2; kill -9 $(cat {pid_file}); restarted
  checkout cid; orders

To try one again, take another customer: a bare checkout soon after an order might be a repeat, and has to say which
cart it means.
Ctrl-C ends both. What is in {folder} stays; what the simulated platform knew does not.
"""


class DemoFailed(Exception):
    """It cannot go on."""


@dataclass
class Demo:
    provider: str
    port: int
    simulator_port: int
    folder: Path
    say: Callable[[str], None]
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cart(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def simulator(self) -> str:
        return f"http://127.0.0.1:{self.simulator_port}"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "cart.pid"

    async def run(self) -> None:
        on_end(self._ending.set)
        with self._alone():
            simulator = await _started(
                "The simulated platform",
                *("telecom_cart.simulators", self.provider, "--port", str(self.simulator_port)),
            )
            try:
                await self._keep(simulator)
            finally:
                await _stopped(simulator)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One demo at a time has the folder: the cart that users are told to kill must be this demo's."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            locked = (self.folder / "demo.lock").open("w")
        except OSError as error:
            raise DemoFailed(f"The folder {self.folder} cannot be used: {error.strerror}.") from None
        with locked:
            try:
                fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DemoFailed(f"Another demo runs in {self.folder}: take another --folder, and ports.") from None
            try:
                yield
            finally:
                self._pid_file.unlink(missing_ok=True)

    async def _keep(self, simulator: Process) -> None:
        is_first = True
        while not self._ending.is_set():
            cart = await self._cart()
            try:
                self._pid_file.write_text(f"{cart.pid}\n")
                self.say(self._welcome() if is_first else f"The cart runs again, as process {cart.pid}.")
                is_first = False
                await self._until_one_ends(cart, simulator)
            finally:
                await _stopped(cart)
            if simulator.returncode is not None and not self._ending.is_set():
                raise DemoFailed("The simulated platform has ended.")
            if not self._ending.is_set():
                self.say("The cart has ended. It is started again.")

    async def _cart(self) -> Process:
        store = f"sqlite:///{self.folder / 'cart.db'}"
        # A simulator numbers its orders by our references.
        platform = ("--provider", self.provider, "--provider-url", self.simulator, "--simulated", "--lookup", "strong")
        patience = ("--port", str(self.port), "--attempt-seconds", str(ATTEMPT_SECONDS))
        return await _started("The cart", "telecom_cart", "serve", "--store", store, *platform, *patience)

    async def _until_one_ends(self, *processes: Process) -> None:
        waits = {asyncio.ensure_future(process.wait()) for process in processes}
        waits.add(asyncio.ensure_future(self._ending.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _welcome(self) -> str:
        return TRIALS.format(
            cart=self.cart,
            simulator=self.simulator,
            folder=self.folder,
            pid_file=shlex.quote(str(self._pid_file.absolute())),
        )


async def _started(what: str, module: str, *arguments: str) -> Process:
    """A process of ours that has said that it is there. It ends with us, even if we are killed."""
    command = (sys.executable, "-m", module, *arguments, "--end-with-stdin")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        why = "what it has said is above"
    except TimeoutError:
        line, why = b"", f"not within {START_SECONDS} s"
    if not line:
        await _stopped(process)
        port = arguments[arguments.index("--port") + 1]
        raise DemoFailed(f"{what} did not start at port {port}: {why}.")
    return process


async def _stopped(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
