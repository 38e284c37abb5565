"""What users may ask for. Every field that is wrong is named, not only the first."""

from __future__ import annotations

import re
from typing import Final

from telecom_cart.errors import FieldProblem, ValidationFailed
from telecom_cart.model import Cart, Item
from telecom_cart.taxes import Province

MAX_QUANTITY: Final = 99
MAX_PRICE: Final = 100_000_000
"""A million, in minor units."""
MAX_ITEMS: Final = 50
NAME_LIMIT: Final = 200
ID_LIMIT: Final = 100
_TYPES: Final = ("device", "plan", "addon")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~-]*")


def checked_user(user_id: str) -> str:
    if problem := _id_problem("/userId", user_id):
        raise ValidationFailed("The user id is not valid.", errors=(problem,))
    return user_id


def checked_product(product_id: str) -> str:
    if problem := _id_problem("/productId", product_id):
        raise ValidationFailed("The product id is not valid.", errors=(problem,))
    return product_id


def checked_order(order_id: str) -> str:
    if problem := _id_problem("/orderId", order_id):
        raise ValidationFailed("The order id is not valid.", errors=(problem,))
    return order_id


def read_item(fields: object) -> Item:
    """An item as it was sent. Numbers are integers: 10.0, true and "1" are none."""
    if not isinstance(fields, dict):
        raise ValidationFailed(errors=(FieldProblem("", "Expected an object"),))
    problems = _strangers(fields, "productId", "name", "type", "quantity", "price")
    product_id, name, kind = fields.get("productId"), fields.get("name"), fields.get("type")
    quantity, price = fields.get("quantity", 1), fields.get("price")
    if problem := _id_problem("/productId", product_id):
        problems.append(problem)
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_LIMIT or not name.isprintable():
        problems.append(FieldProblem("/name", f"Expected a text of 1 to {NAME_LIMIT} printable characters"))
    if kind not in _TYPES:
        problems.append(FieldProblem("/type", f"Expected one of {', '.join(_TYPES)}"))
    problems += quantity_problems(quantity, least=1)
    if type(price) is not int or not 0 <= price <= MAX_PRICE:
        problems.append(FieldProblem("/price", f"Expected an integer from 0 to {MAX_PRICE}, in minor units (cents)"))
    if problems:
        raise ValidationFailed(errors=tuple(problems))
    return Item(product_id, name, kind, quantity, price)  # type: ignore[arg-type]


def read_quantity(fields: object) -> int:
    """The new quantity of an item; 0 takes it out."""
    quantity = fields.get("quantity") if isinstance(fields, dict) else None
    problems = quantity_problems(quantity, least=0) + _strangers(fields, "quantity")
    if problems:
        raise ValidationFailed(errors=tuple(problems))
    assert isinstance(quantity, int)
    return quantity


def read_province(fields: object) -> Province | None:
    """The province for taxes; null for none."""
    province = fields.get("province", "") if isinstance(fields, dict) else ""
    problems = _strangers(fields, "province")
    if province is not None and province not in list(Province):
        problems.append(FieldProblem("/province", f"Expected one of {', '.join(Province)}, or null"))
    if problems:
        raise ValidationFailed(errors=tuple(problems))
    return None if province is None else Province(province)


def read_checkout(fields: object) -> str | None:
    """The id of the cart that is to be ordered, if somebody says it."""
    if fields is None:
        return None
    cart_id = fields.get("cartId") if isinstance(fields, dict) else None
    problems = _strangers(fields, "cartId")
    if cart_id is not None and (problem := _id_problem("/cartId", cart_id)):
        problems.append(problem)
    if problems:
        raise ValidationFailed(errors=tuple(problems))
    return cart_id


def pointer_to(*names: str) -> str:
    """A JSON pointer."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def quantity_problems(quantity: object, *, least: int) -> list[FieldProblem]:
    if type(quantity) is int and least <= quantity <= MAX_QUANTITY:
        return []
    return [FieldProblem("/quantity", f"Expected an integer from {least} to {MAX_QUANTITY}")]


def added(cart: Cart, item: Item) -> tuple[Item, ...]:
    """The items of a cart with one more. What is in it already adds up, with the newer name and price."""
    present = cart.item(item.product_id)
    if present is None:
        if len(cart.items) >= MAX_ITEMS:
            expected = f"Expected at most {MAX_ITEMS} different products in a cart"
            raise ValidationFailed(errors=(FieldProblem("/productId", expected),))
        return (*cart.items, item)
    if present.type != item.type:
        expected = f"Expected {present.type}, which this product is in the cart"
        raise ValidationFailed(errors=(FieldProblem("/type", expected),))
    quantity = present.quantity + item.quantity
    if quantity > MAX_QUANTITY:
        expected = f"Expected at most {MAX_QUANTITY} of a product, and {present.quantity} are in the cart already"
        raise ValidationFailed(errors=(FieldProblem("/quantity", expected),))
    merged = Item(item.product_id, item.name, item.type, quantity, item.price)
    return tuple(merged if each is present else each for each in cart.items)


def _strangers(fields: object, *known: str) -> list[FieldProblem]:
    """Fields that nobody knows."""
    if not isinstance(fields, dict):
        return [FieldProblem("", "Expected an object")]
    expected = f"Expected only {', '.join(known)}"
    return [FieldProblem(pointer_to(name), expected) for name in fields if name not in known]


def is_id(value: object) -> bool:
    return isinstance(value, str) and len(value) <= ID_LIMIT and _ID.fullmatch(value) is not None


def _id_problem(pointer: str, value: object) -> FieldProblem | None:
    if is_id(value):
        return None
    return FieldProblem(
        pointer, f"Expected 1 to {ID_LIMIT} letters, digits and . _ : @ ~ -, of which the first is a letter or digit"
    )
