"""What the types cannot say about a request: the rules that hold for every way in which a timer is asked for."""

from __future__ import annotations

from msgspec import UNSET

from mainspring.delivery.headers import check_headers
from mainspring.delivery.secrets import Secrets
from mainspring.errors import FieldError, InvalidInput
from mainspring.timers.messages import CreateTimer, UpdateTimer
from mainspring.wire.checks import CheckUrl, id_errors, label_errors, refuse, url_errors


def check(request: CreateTimer | UpdateTimer, *, check_url: CheckUrl, secrets: Secrets) -> None:
    """Raise `InvalidInput` that names every wrong field. `check_url` refuses destinations.

    A hidden value stands for nothing in a create; in an update it depends on what is stored.
    """

    def check_target(url: str) -> None:
        check_url(url)
        if isinstance(request, CreateTimer):
            secrets.check_url(url, "/callbackUrl")

    errors: list[FieldError] = id_errors("/timerId", request.timer_id)
    if request.callback_url is not UNSET:
        errors += url_errors("/callbackUrl", request.callback_url, check_target)
    if request.headers is not UNSET and request.headers:
        try:
            check_headers(request.headers)
            if isinstance(request, CreateTimer):
                secrets.check(request.headers)
        except InvalidInput as error:
            errors += error.errors
    if request.labels is not UNSET:
        errors += label_errors(request.labels)
    refuse(errors)
