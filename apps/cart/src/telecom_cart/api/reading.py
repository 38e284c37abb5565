"""What is read of a request: a bounded JSON body, and the headers If-Match and Idempotency-Key."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from starlette.requests import Request

from telecom_cart.api.refusals import BodyTooLarge, NotJson
from telecom_cart.carts import Carts
from telecom_cart.errors import CartNotFound, FieldProblem, Outdated, ValidationFailed
from telecom_cart.keys import Keys

MAX_BODY_BYTES: Final = 16_384
_TAG: Final = re.compile(r'"([\x21\x23-\x7e]{1,200})"')


async def document(request: Request, *, is_optional: bool = False) -> object:
    """The JSON document of a request; None if there is no body and none is needed."""
    body = await _body(request)
    if not body and is_optional:
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise NotJson
    try:
        return json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValidationFailed(errors=(FieldProblem("", "Expected a JSON document, each name in it once"),)) from None


async def if_match(request: Request, carts: Carts, user_id: str) -> str | None:
    """The state of the cart that the caller has seen; None: any."""
    given = request.headers.getlist("if-match")
    if not given:
        return None
    if given == ["*"]:
        try:
            await carts.peek(user_id)
        except CartNotFound:
            raise Outdated("There is no cart.") from None
        return None
    if len(given) == 1 and given[0].startswith("W/"):
        raise Outdated("Expected a strong tag, which a weak one never equals.")
    found = _TAG.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        expected = 'Expected one tag in quotes as ETag gives it, such as "c0ffee.3", or *'
        raise ValidationFailed(errors=(FieldProblem("If-Match", expected),))
    return found[1]


def idempotency_key(request: Request) -> str | None:
    given = request.headers.getlist("idempotency-key")
    if len(given) > 1:
        raise ValidationFailed(errors=(FieldProblem("Idempotency-Key", "Expected one"),))
    return Keys.check(given[0]) if given else None


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge(f"Expected a body of at most {MAX_BODY_BYTES} bytes.")
        parts.append(part)
    return b"".join(parts)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("Expected each name once")
    return made


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"Expected JSON, which has no {name}")
