"""The routes of carts and orders."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from telecom_cart.api import contract
from telecom_cart.api.reading import document, idempotency_key, if_match
from telecom_cart.api.views import cart_view, order_view, result_view, summary_view
from telecom_cart.checkout import Wish
from telecom_cart.checks import (
    checked_order,
    checked_product,
    checked_user,
    read_checkout,
    read_item,
    read_province,
    read_quantity,
)
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

    async def seen(request: Request, user_id: str) -> str | None:
        return await if_match(request, carts, user_id)

    @routes.get(CART, **contract.GET_CART)
    async def get_cart(request: Request) -> Response:
        return answered(await carts.get(_user(request)))

    @routes.delete(CART, **contract.DELETE_CART)
    async def delete_cart(request: Request) -> Response:
        user_id = _user(request)
        await carts.delete(user_id, if_match=await seen(request, user_id))
        return Response(status_code=204)

    @routes.get(f"{CART}/summary", **contract.GET_SUMMARY)
    async def get_summary(request: Request) -> Response:
        cart = await carts.peek(_user(request))
        return JSONResponse(summary_view(cart, today()), headers={"ETag": f'"{cart.etag}"'})

    @routes.put(f"{CART}/province", **contract.PUT_PROVINCE)
    async def set_province(request: Request) -> Response:
        user_id = _user(request)
        province = read_province(await document(request))
        return answered(await carts.set_province(user_id, province, if_match=await seen(request, user_id)))

    @routes.post(f"{CART}/items", **contract.POST_ITEM)
    async def add_item(request: Request) -> Response:
        user_id = _user(request)
        item = read_item(await document(request))
        return answered(await carts.add_item(user_id, item, if_match=await seen(request, user_id)))

    @routes.put(ITEM, **contract.PUT_ITEM)
    async def set_quantity(request: Request) -> Response:
        user_id, product_id = _user(request), _product(request)
        quantity = read_quantity(await document(request))
        matched = await seen(request, user_id)
        return answered(await carts.set_quantity(user_id, product_id, quantity, if_match=matched))

    @routes.delete(ITEM, **contract.DELETE_ITEM)
    async def remove_item(request: Request) -> Response:
        user_id, product_id = _user(request), _product(request)
        return answered(await carts.remove_item(user_id, product_id, if_match=await seen(request, user_id)))

    @routes.post(f"{CART}/checkout", **contract.POST_CHECKOUT)
    async def check_out(request: Request) -> Response:
        user_id = _user(request)
        cart_id = read_checkout(await document(request, is_optional=True))
        wish = Wish(key=idempotency_key(request), if_match=await seen(request, user_id), cart_id=cart_id)
        return JSONResponse(result_view(await shop.checkouts.run(user_id, wish)))

    @routes.get("/v1/orders/{orderId}", **contract.GET_ORDER)
    async def get_order(request: Request) -> Response:
        return JSONResponse(order_view(await carts.order(checked_order(_in_path(request, "orderId")))))

    return routes


def _user(request: Request) -> str:
    return checked_user(_in_path(request, "userId"))


def _product(request: Request) -> str:
    return checked_product(_in_path(request, "productId"))


def _in_path(request: Request, name: str) -> str:
    params: dict[str, Any] = request.path_params
    return str(params[name])
