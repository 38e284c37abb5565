"""What the types cannot say about a request: the rules that hold for every way in which a timer is asked for."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from mainspring.delivery.headers import check_headers
from mainspring.delivery.secrets import Secrets
from mainspring.errors import FieldError, InvalidInput, UnsafeTarget
from mainspring.text import hides_something
from mainspring.timers.messages import CreateTimer, UpdateTimer

HIDDEN = "Expected no control characters, and none that turn the direction of writing"


def check_request(request: CreateTimer | UpdateTimer, *, check_url: Callable[[str], object], secrets: Secrets) -> None:
    """Raise `InvalidInput` that names every wrong field. `check_url` refuses destinations.

    What is hidden stands for nothing in a create; in an update it depends on what is stored.
    """
    errors: list[FieldError] = []
    if hides_something(request.timer_id):
        errors.append(FieldError("/timerId", HIDDEN))
    if request.callback_url is not UNSET:
        try:
            check_url(request.callback_url)
            if isinstance(request, CreateTimer):
                secrets.check_url(request.callback_url, "/callbackUrl")
        except (InvalidInput, UnsafeTarget) as error:
            errors.append(FieldError("/callbackUrl", error.detail))
    if request.headers is not UNSET and request.headers:
        try:
            check_headers(request.headers)
            if isinstance(request, CreateTimer):
                secrets.check(request.headers)
        except InvalidInput as error:
            errors += error.errors
    for name, value in ({} if request.labels is UNSET else request.labels).items():
        if hides_something(name + value):
            errors.append(FieldError("/labels", f"{HIDDEN}, in label {name!r}"))
    if errors:
        raise InvalidInput(errors[0].detail, errors=tuple(errors))
