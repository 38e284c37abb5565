"""A program that asks for a fetch, or only lives beside one, until the fetch has ended and its origin knows.

python -m tests.fetches.program <store URL> <reqId> <URL> <result URL>
python -m tests.fetches.program <store URL> <reqId>
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import asyncio
import sys

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from tests.support.fetch_requests import asking, ended, until


async def main(store: str, req_id: str, url: str = "", result_url: str = "") -> None:
    async with Instance(Config(allow_loopback=True, store=store, drain_seconds=1.0)) as instance:
        if url:
            await instance.fetches.create(asking(url, "POST", req_id=req_id, result_url=result_url))
        await ended(instance.fetches, req_id)
        view = await until(instance.fetches, req_id, lambda view: view.delivery.state != "waiting")
        print(view.state, view.delivery.state, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
