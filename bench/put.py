"""The limit of the cart: a bare FastAPI endpoint that puts one document into the store, durably, and answers.

python -m bench.put PORT STORE. It does what any shop must do that keeps a cart, and nothing else.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from mainspring import Mainspring
from mainspring.processes.startup import spare_collector


async def serve(port: int, store: str) -> None:
    app = FastAPI()
    async with Mainspring(store) as ms:
        carts = ms.records("carts", dict[str, Any])

        @app.get("/")
        async def ready() -> JSONResponse:
            return JSONResponse({})

        @app.post("/v1/carts/{user_id}/items")
        async def add(user_id: str, request: Request) -> JSONResponse:
            item = await request.json()
            found = await carts.get(user_id)
            put = await carts.put(user_id, item, expect=found.version if found else 0)
            return JSONResponse(put.value)

        server = uvicorn.Server(
            uvicorn.Config(app, port=port, log_level="warning", access_log=False, lifespan="off", ws="none")
        )
        spare_collector()
        await server.serve()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
