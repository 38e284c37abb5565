"""A program with an origin, to be killed and started again.

python -m tests.origins.program STORE TARGET    places an order unless that is done, waits until it is shipped and every
                                                result acknowledged, and says what its state is then
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from mainspring import Mainspring
from mainspring.origins import FetchError, Origin, RequestSync, ResponseSync

SECONDS = 20


class Order(Origin):
    def place(self, target: str) -> None:
        self.state["steps"] = ["placed"]
        self.svc.proxy_fetch(RequestSync(f"{target}/pay", json={"order": self.id}), self.ctn().paid(target))

    def paid(self, target: str, result: ResponseSync | FetchError) -> None:
        self._note("paid", result)
        self.svc.proxy_fetch(RequestSync(f"{target}/ship", method="POST"), self.ctn().shipped())

    def shipped(self, result: ResponseSync | FetchError) -> None:
        self._note("shipped", result)

    def _note(self, step: str, result: ResponseSync | FetchError) -> None:
        told = str(result.status) if isinstance(result, ResponseSync) else type(result).__name__
        self.state["steps"].append(f"{step} {told}")


async def main(store: str, target: str) -> None:
    async with Mainspring(store, allow_loopback=True, origins=[Order]) as ms:
        order = ms.origin(Order, "o1")
        if not await order.snapshot():
            await order.call(Order.place, target)
        async with asyncio.timeout(SECONDS):
            while len((await order.snapshot())["steps"]) < 3 or not await all_delivered(ms):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # nobody tells
        sys.stdout.write(msgspec.json.encode(await order.snapshot()).decode())


async def all_delivered(ms: Mainspring) -> bool:
    """Whether every result was acknowledged: none will come again."""
    fetches = [await ms.fetches.get(summary.req_id) async for summary in ms.fetches.iterate()]
    return all(fetch.delivery.state == "delivered" for fetch in fetches)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
