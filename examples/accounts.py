"""An account that asks a bank, and gets the answer even if this program is killed in between.

    python examples/accounts.py [database file]

Kill it (Ctrl-C, kill -9) while the bank thinks, and start it again. The deposit is never sent twice: if nobody can know
whether it arrived, the account looks before it asks again.
"""

import asyncio
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from mainspring import Mainspring
from mainspring.origins import FetchError, Origin, RequestSync, ResponseSync


class Accounts(Origin):
    """Methods are plain functions. What one of them changes and asks for is committed together, or not at all."""

    def open(self, amount: int) -> None:
        self.state["status"] = "opening"
        self._deposit(amount)

    def deposited(self, amount: int, result: ResponseSync | FetchError) -> None:
        if isinstance(result, ResponseSync):
            self._conclude(amount, result)
        elif result.definite:  # the bank has certainly not got it
            self._deposit(amount)
        else:
            print(f"{self.id}: {result}")
            self.state["status"] = "unclear"
            self._look(amount)

    def looked(self, amount: int, result: ResponseSync | FetchError) -> None:
        if isinstance(result, ResponseSync) and result.ok:
            self._conclude(amount, result)
        elif isinstance(result, ResponseSync) and result.status == 404:  # the bank says that it has not got it
            self._deposit(amount)
        else:  # it says neither: look again. A real program would wait a while, or tell somebody.
            self._look(amount)

    def _look(self, amount: int) -> None:
        self.svc.proxy_fetch(f"{self.svc.bank}/{self.id}", self.ctn().looked(amount))

    def _deposit(self, amount: int) -> None:
        request = RequestSync(f"{self.svc.bank}/{self.id}", method="POST", json={"amount": amount})
        self.svc.proxy_fetch(request, self.ctn().deposited(amount), timeout=10)

    def _conclude(self, amount: int, response: ResponseSync) -> None:
        self.state["status"] = "open" if response.ok else "refused"
        self.state["balance"] = amount if response.ok else 0


class Bank(BaseHTTPRequestHandler):
    """Slow, and forgets everything when the program ends."""

    deposits: set[str] = set()

    def do_POST(self) -> None:
        time.sleep(1)
        self.deposits.add(self.path)
        self._answer(201)

    def do_GET(self) -> None:
        self._answer(200 if self.path in self.deposits else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


async def main(path: str) -> None:
    bank = ThreadingHTTPServer(("127.0.0.1", 0), Bank)
    Thread(target=bank.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{bank.server_port}"

    # The bank is on this machine, where the calls of a program go only if it says so.
    async with Mainspring(
        f"sqlite:///{path}", allow_loopback=True, origins=[Accounts], services={"bank": lambda: address}
    ) as ms:
        ann = ms.origin(Accounts, "ann")
        if not await ann.snapshot():
            await ann.call(Accounts.open, 100)
            print("ann: asked the bank", flush=True)
        while "balance" not in (state := await ann.snapshot()):  # noqa: ASYNC110 - results go to the account
            await asyncio.sleep(0.1)
        print(f"ann: {state['status']}, balance {state['balance']}")
    bank.shutdown()
    bank.server_close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "accounts.db"))
