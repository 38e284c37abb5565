"""What the types cannot say about a request: the rules that hold for every way in which a timer is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import UNSET

from mainspring.delivery.headers import check_headers
from mainspring.errors import FieldError, InvalidInput, UnsafeTarget
from mainspring.timers.messages import CreateTimer, UpdateTimer

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_request(request: CreateTimer | UpdateTimer, *, check_url: Callable[[str], object]) -> None:
    """Raise `InvalidInput` that names every wrong field. `check_url` refuses destinations."""
    errors: list[FieldError] = []
    if _CONTROL.search(request.timer_id):
        errors.append(FieldError("/timerId", "Expected no control characters"))
    if request.callback_url is not UNSET:
        try:
            check_url(request.callback_url)
        except (InvalidInput, UnsafeTarget) as error:
            errors.append(FieldError("/callbackUrl", error.detail))
    if request.headers is not UNSET and request.headers:
        try:
            check_headers(request.headers)
        except InvalidInput as error:
            errors += error.errors
    for name, value in ({} if request.labels is UNSET else request.labels).items():
        if _CONTROL.search(name + value):
            errors.append(FieldError("/labels", f"Expected no control characters in label {name!r}"))
    if errors:
        raise InvalidInput(errors[0].detail, errors=tuple(errors))
