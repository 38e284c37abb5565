"""What is read of a request: a bounded JSON body, the headers If-Match and Idempotency-Key, the page of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from starlette.requests import Request

from telecom_cart.api.refusals import BodyTooLarge, NotJson
from telecom_cart.checks import checked_product, checked_user, is_id
from telecom_cart.errors import FieldProblem, ValidationFailed
from telecom_cart.keys import Keys

T = TypeVar("T")

MAX_BODY_BYTES: Final = 16_384
DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 50
_LIMIT: Final = re.compile("[0-9]{1,4}")
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


def if_match(request: Request) -> str | None:
    """The state of the cart that the caller has seen, or * or a weak tag as they stand; None: nobody says."""
    given = request.headers.getlist("if-match")
    if not given:
        return None
    if given == ["*"] or (len(given) == 1 and given[0].startswith("W/")):
        return given[0]
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


@dataclass(frozen=True)
class Asked:
    """What a request about a cart says. `body` is what its reader made of it."""

    user_id: str
    product_id: str
    tag: str | None
    key: str | None
    body: Any


async def asked(
    request: Request,
    read: Callable[[object], object] | None = None,
    *,
    is_optional: bool = False,
    has_key: bool = False,
) -> Asked:
    """All parts of a request. What is wrong with any of them is named, not only the first."""
    failed: list[ValidationFailed] = []

    def tried(part: Callable[[], T]) -> T | None:
        try:
            return part()
        except ValidationFailed as error:
            failed.append(error)
            return None

    path = request.path_params
    user_id = tried(lambda: checked_user(str(path["userId"])))
    product_id = tried(lambda: checked_product(str(path["productId"]))) if "productId" in path else ""
    tag = tried(lambda: if_match(request))
    key = tried(lambda: idempotency_key(request)) if has_key else None
    body: object = None
    try:
        body = read(await document(request, is_optional=is_optional)) if read is not None else None
    except ValidationFailed as error:
        failed.append(error)
    if failed:
        several = ValidationFailed(errors=tuple(problem for error in failed for problem in error.errors))
        raise several if len(failed) > 1 else failed[0]
    assert user_id is not None
    assert product_id is not None
    return Asked(user_id, product_id, tag, key, body)


@dataclass(frozen=True)
class Page:
    """Which part of the list of a user is asked for."""

    user_id: str
    limit: int
    after: str | None


def page(request: Request) -> Page:
    problems: list[FieldProblem] = []
    user_id = str(request.path_params["userId"])
    try:
        checked_user(user_id)
    except ValidationFailed as error:
        problems += error.errors
    limits, afters = request.query_params.getlist("limit"), request.query_params.getlist("after")
    if len(limits) > 1 or not all(_LIMIT.fullmatch(limit) and 1 <= int(limit) <= MAX_PAGE for limit in limits):
        problems.append(FieldProblem("limit", f"Expected an integer from 1 to {MAX_PAGE}"))
    if len(afters) > 1 or not all(map(is_id, afters)):
        problems.append(FieldProblem("after", "Expected the id of an order of this user"))
    if problems:
        raise ValidationFailed(errors=tuple(problems))
    return Page(user_id, int(limits[0]) if limits else DEFAULT_PAGE, afters[0] if afters else None)


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
