"""What the types cannot say about a job: the rules that hold however a job is requested."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from mainspring.delivery.headers import check_headers
from mainspring.errors import FieldError, InvalidInput
from mainspring.jobs.messages import (
    JobName,
)
from mainspring.jobs.record import Definition, Routing, calendar_of
from mainspring.text import FORMS, NAME
from mainspring.wire.checks import CheckUrl, refuse, url_errors
from mainspring.wire.instants import LAST_INSTANT

_TERMINATE: Final = (
    "Expected another overlap policy, got terminateOther: a call under way cannot be undone, and closing its "
    "connection would only make its outcome unknown; cancelOther stops what can be stopped"
)


def check_name(name: str) -> None:
    try:
        msgspec.convert(name, JobName)
    except msgspec.ValidationError as error:
        detail = f"Expected a name of at most 128 characters, {FORMS[NAME]}"
        raise InvalidInput(detail, errors=(FieldError("/name", detail),)) from error


def check(name: str, definition: Definition, routing: Routing, *, check_url: CheckUrl) -> None:
    """Raise `InvalidInput` that names every wrong field."""
    errors: list[FieldError] = []
    try:
        calendar_of(name, definition.terms)
    except InvalidInput as error:
        errors += error.errors
    errors += _target_errors(name, definition, routing, check_url)
    try:
        check_headers(definition.headers)
    except InvalidInput as error:
        errors += error.errors
    if definition.overlap == "terminateOther":
        errors.append(FieldError("/overlap", _TERMINATE))
    refuse(errors + _bound_errors(definition))


def _target_errors(name: str, definition: Definition, routing: Routing, check_url: CheckUrl) -> list[FieldError]:
    if definition.url is not None and definition.route is not None:
        return [FieldError("/route", "Expected at most one of url and route, got both")]
    if definition.route is not None and (flaw := _flaw(definition.route)):
        return [FieldError("/route", f"Expected a path below job_base_url, got one {flaw}")]
    if definition.url is None:
        if not routing.base_url:
            return [FieldError("/url", "Expected a url, or for a route the setting job_base_url, got neither")]
        if not routing.token and not _has_authorization(definition):
            detail = "Expected the setting job_token or, in the job, an authorization header for its route, got neither"
            return [FieldError("/route", detail)]
    pointer = "/url" if definition.route is None else "/route"
    return url_errors(pointer, routing.url_of(name, definition), check_url)


def _flaw(route: str) -> str:
    """What would make a route lead anywhere but below the base URL, if anything does."""
    if route.startswith("//"):
        return "that begins with //"
    return "with .. in it" if ".." in unquote(route.partition("?")[0]).split("/") else ""


def _has_authorization(definition: Definition) -> bool:
    return any(header.lower() == "authorization" for header in definition.headers)


def _bound_errors(definition: Definition) -> list[FieldError]:
    errors: list[FieldError] = []
    for pointer, instant in (("/startAt", definition.starts_at), ("/endAt", definition.ends_at)):
        if instant is not None and not 0 <= instant <= LAST_INSTANT:
            errors.append(FieldError(pointer, "Expected an instant from 1970 to 9999 in UTC"))
    if (definition.starts_at or 0) > (definition.ends_at or LAST_INSTANT):
        errors.append(FieldError("/endAt", "Expected an instant not before startAt, got an earlier one"))
    return errors
