"""The limit of the HTTP edge: a plain ASGI echo under uvicorn, with uvloop and httptools.

python -m bench.echo PORT. It does what any JSON service must do, read the body and answer with one, and nothing else.
"""

from __future__ import annotations

import sys

import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope


async def echo(scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        more = message["more_body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})


if __name__ == "__main__":
    uvicorn.run(
        echo,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
