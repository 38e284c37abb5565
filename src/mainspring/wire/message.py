"""What all messages are made of: requests, answers, and the fields that several services share.

The same types serve the HTTP API, its OpenAPI description, the SDK and the CLI. camelCase on the wire. Requests refuse
unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from mainspring.errors import FieldError
from mainspring.text import NAME
from mainspring.wire.frameworks import document_of, json_schema, pydantic_schema, pydantic_serializer

NamespaceName = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]


CallbackUrl = Annotated[str, Meta(min_length=1, max_length=2048, description="An absolute http or https URL.")]


CallbackTimeout = Annotated[float, Meta(ge=1, le=1800)]


HEADER_LIMIT = 50


Headers = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=255)], Annotated[str, Meta(max_length=8192)]],
    Meta(max_length=HEADER_LIMIT),
]


Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=63)], Annotated[str, Meta(max_length=255)]], Meta(max_length=32)
]


PageSize = Annotated[int, Meta(ge=1, le=1000)]


Cursor = Annotated[str, Meta(max_length=1024)]


BATCH_ITEMS = 1000


AS_WRITTEN: Final = "_json"
"""Ends the name of a view's field that holds JSON byte for byte."""


class Message(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A request."""


class View(Struct, frozen=True, rename="camel"):
    """An answer. Clients ignore unknown fields.

    `dict(view)` is the JSON of the API as Python values, and FastAPI answers with a view as the API does. A field that
    holds JSON as it was written ends in `_json`; the property without that is its value.
    """

    def __iter__(self) -> Iterator[tuple[str, object]]:
        return iter(document_of(self).items())

    def __repr__(self) -> str:
        said = (f"{name.removesuffix(AS_WRITTEN)}={_value(getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def __pydantic_serializer__(self) -> Any:
        return pydantic_serializer(type(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return pydantic_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        return json_schema(cls)


def _value(held: object) -> object:
    return msgspec.json.decode(held) if isinstance(held, Raw) else held


class ProblemItem(View, frozen=True, kw_only=True):
    """What was wrong with one item of a batch."""

    code: str
    detail: str
    retryable: bool = False
    errors: tuple[FieldError, ...] = ()
