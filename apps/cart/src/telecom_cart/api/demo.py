"""For trials only: the page at `/`, and the controls of the simulated platform under `/demo`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from telecom_cart.api.requests import document
from telecom_cart.errors import ProviderDown

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGES: Final = {
    "/": ("cart.html", "text/html"),
    "/cart.js": ("cart.js", "text/javascript"),
    "/cart.css": ("cart.css", "text/css"),
}
_CONTROLS: Final = (
    ("GET", "state"),
    ("GET", "ledger"),
    ("POST", "faults"),
    ("DELETE", "faults"),
    ("POST", "expire"),
)
_TIMEOUT_SECONDS: Final = 5.0


def router(simulator: str) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    for path, (name, media_type) in _PAGES.items():
        routes.add_api_route(path, _page(name, media_type), methods=["GET"])
    for method, name in _CONTROLS:
        routes.add_api_route(f"/demo/{name}", _forward(simulator, method, name), methods=[method])
    return routes


def _page(name: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    content = files("telecom_cart.pages").joinpath(name).read_bytes()
    headers = {"Content-Security-Policy": CONTENT_POLICY, "Referrer-Policy": "no-referrer"}

    async def page() -> Response:
        return Response(content, headers=headers, media_type=media_type)

    return page


def _forward(simulator: str, method: str, name: str) -> Callable[[Request], Awaitable[Response]]:
    async def forward(request: Request) -> Response:
        body = json.dumps(await document(request)) if method == "POST" else None
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=_TIMEOUT_SECONDS)) as client,
                client.request(method, f"{simulator}/_sim/{name}", data=body) as got,
            ):
                return JSONResponse(json.loads(await got.read()), got.status)
        except (ClientError, TimeoutError, ValueError):
            raise ProviderDown("The simulated platform does not answer.") from None

    return forward
