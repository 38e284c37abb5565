"""The routes of carts and orders."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from telecom_cart.api import contract
from telecom_cart.api.requests import Asked, asked, page
from telecom_cart.api.views import cart_view, order_view, orders_view, result_view, summary_view
from telecom_cart.checkout import Wish
from telecom_cart.checks import (
    checked_order,
    checked_user,
    read_checkout,
    read_item,
    read_province,
    read_quantity,
)
from telecom_cart.errors import CartNotFound, Outdated
from telecom_cart.model import Cart
from telecom_cart.shop import Shop

CART = "/v1/carts/{userId}"
ITEM = "/v1/carts/{userId}/items/{productId}"


def router(shop: Shop) -> APIRouter:
    routes = APIRouter()
    carts = shop.carts

    def today() -> date:
        return datetime.fromtimestamp(shop.repository.now_ms() / 1000, UTC).date()

    def answered(cart: Cart) -> Response:
        return JSONResponse(cart_view(cart, today()), headers={"ETag": f'"{cart.etag}"'})

    async def seen(said: Asked) -> str | None:
        """The state that has to be the present one; None: any will do."""
        if said.tag is not None and said.tag.startswith("W/"):
            raise Outdated("Expected a strong tag, which a weak one never equals.")
        if said.tag != "*":
            return said.tag
        try:
            await carts.peek(said.user_id)
        except CartNotFound:
            raise Outdated("There is no cart.") from None
        return None

    @routes.get(CART, **contract.GET_CART)
    async def get_cart(request: Request) -> Response:
        return answered(await carts.get(_user(request)))

    @routes.delete(CART, **contract.DELETE_CART)
    async def delete_cart(request: Request) -> Response:
        said = await asked(request)
        await carts.delete(said.user_id, if_match=await seen(said))
        return Response(status_code=204)

    @routes.get(f"{CART}/summary", **contract.GET_SUMMARY)
    async def get_summary(request: Request) -> Response:
        cart = await carts.peek(_user(request))
        return JSONResponse(summary_view(cart, today()), headers={"ETag": f'"{cart.etag}"'})

    @routes.put(f"{CART}/province", **contract.PUT_PROVINCE)
    async def set_province(request: Request) -> Response:
        said = await asked(request, read_province)
        return answered(await carts.set_province(said.user_id, said.body, if_match=await seen(said)))

    @routes.post(f"{CART}/items", **contract.POST_ITEM)
    async def add_item(request: Request) -> Response:
        said = await asked(request, read_item)
        return answered(await carts.add_item(said.user_id, said.body, if_match=await seen(said)))

    @routes.put(ITEM, **contract.PUT_ITEM)
    async def set_quantity(request: Request) -> Response:
        said = await asked(request, read_quantity)
        matched = await seen(said)
        return answered(await carts.set_quantity(said.user_id, said.product_id, said.body, if_match=matched))

    @routes.delete(ITEM, **contract.DELETE_ITEM)
    async def remove_item(request: Request) -> Response:
        said = await asked(request)
        return answered(await carts.remove_item(said.user_id, said.product_id, if_match=await seen(said)))

    @routes.post(f"{CART}/checkout", **contract.POST_CHECKOUT)
    async def check_out(request: Request) -> Response:
        said = await asked(request, read_checkout, is_optional=True, has_key=True)
        wish = Wish(key=said.key, if_match=await seen(said), cart_id=said.body)
        return JSONResponse(result_view(await shop.checkouts.run(said.user_id, wish)))

    @routes.get(f"{CART}/orders", **contract.GET_ORDERS)
    async def get_orders(request: Request) -> Response:
        wanted = page(request)
        orders, has_more = await carts.orders(wanted.user_id, limit=wanted.limit, after=wanted.after)
        return JSONResponse(orders_view(orders, has_more=has_more))

    @routes.get("/v1/orders/{orderId}", **contract.GET_ORDER)
    async def get_order(request: Request) -> Response:
        return JSONResponse(order_view(await carts.order(checked_order(_in_path(request, "orderId")))))

    return routes


def _user(request: Request) -> str:
    return checked_user(_in_path(request, "userId"))


def _in_path(request: Request, name: str) -> str:
    params: dict[str, Any] = request.path_params
    return str(params[name])
