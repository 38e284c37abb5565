"""What all messages are made of: requests, answers, and the fields that several services share.

The same types serve the HTTP API, its OpenAPI description, the SDK and the CLI. camelCase on the wire. Requests refuse
unknown fields.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.errors import FieldError
from mainspring.text import NAME

NamespaceName = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]


CallbackUrl = Annotated[str, Meta(min_length=1, max_length=2048, description="An absolute http or https URL.")]


CallbackTimeout = Annotated[float, Meta(ge=1, le=1800)]


Headers = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=255)], Annotated[str, Meta(max_length=8192)]], Meta(max_length=50)
]


Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=63)], Annotated[str, Meta(max_length=255)]], Meta(max_length=32)
]


PageSize = Annotated[int, Meta(ge=1, le=1000)]


Cursor = Annotated[str, Meta(max_length=1024)]


BATCH_ITEMS = 1000


class Message(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A request."""


class View(Struct, frozen=True, rename="camel"):
    """An answer. Clients ignore unknown fields."""


class ProblemItem(View, frozen=True, kw_only=True):
    """What was wrong with one item of a batch."""

    code: str
    detail: str
    retryable: bool = False
    errors: tuple[FieldError, ...] = ()
