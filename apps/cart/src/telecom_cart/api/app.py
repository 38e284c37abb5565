"""The application. `simulator` is the address of a simulated platform: with it there is a page for trials at `/`."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from telecom_cart.api import carts, contract, demo, problems
from telecom_cart.api.correlation import Correlation
from telecom_cart.api.heads import Heads
from telecom_cart.api.health import SharedHealth
from telecom_cart.api.keyed import KeyedAdds
from telecom_cart.shop import Shop


def create_app(shop: Shop, *, simulator: str | None = None, health: SharedHealth | None = None) -> FastAPI:
    """To be served inside the block of the shop."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url="/openapi.json", redirect_slashes=False)
    routers = [carts.router(shop), _health(shop, health or SharedHealth(shop))]
    if simulator is not None:
        routers.append(demo.router(simulator))
    for router in routers:
        app.include_router(router)
    problems.install(app, [route for router in routers for route in router.routes if isinstance(route, Route)])
    contract.install(app)
    # The last one stands outermost.
    app.add_middleware(KeyedAdds, store=shop.idempotency_store)
    app.add_middleware(Heads)
    app.add_middleware(problems.Strangers)
    app.add_middleware(problems.Unforeseen)
    app.add_middleware(Correlation)
    return app


def _health(shop: Shop, health: SharedHealth) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health", **contract.GET_HEALTH)
    async def get_health() -> Response:
        await shop.repository.reach()
        found, unknown = await health.get()
        provider = {
            "name": shop.provider.name,
            "status": "up" if found.is_up else "down",
            "detail": found.detail or await shop.trust.doubt() or None,
            "facts": found.facts,
        }
        told = {"status": "healthy" if found.is_up else "degraded", "provider": provider}
        return JSONResponse({**told, "unknownCheckouts": unknown})

    return routes
