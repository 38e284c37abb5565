"""What lets other libraries serialise our views: pydantic, and with it FastAPI, is told how; none of them is loaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec


def document_of(view: msgspec.Struct) -> dict[str, object]:
    """The JSON of the API, as Python values."""
    document: dict[str, object] = msgspec.json.decode(msgspec.json.encode(view))
    return document


def pydantic_schema(kind: type[msgspec.Struct]) -> Any:
    """A view is taken as it is, or read from the JSON of the API, and written as that."""
    from pydantic_core import core_schema  # noqa: PLC0415 - only pydantic asks for it

    def take(value: object) -> msgspec.Struct:
        return value if isinstance(value, kind) else msgspec.json.decode(msgspec.json.encode(value), type=kind)

    return core_schema.no_info_plain_validator_function(
        take, serialization=core_schema.plain_serializer_function_ser_schema(document_of)
    )


@cache
def pydantic_serializer(kind: type[msgspec.Struct]) -> Any:
    """For a view where pydantic was not told that there would be one: in a dict, or as the answer of any kind."""
    from pydantic_core import SchemaSerializer  # noqa: PLC0415 - only pydantic asks for it

    return SchemaSerializer(pydantic_schema(kind))


def json_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """All in one piece: references would have to point into a document that is somebody else's."""
    whole = msgspec.json.schema(kind)
    parts: dict[str, Any] = whole.get("$defs", {})

    def put_in(value: Any) -> Any:
        if isinstance(value, list):
            return [put_in(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return put_in(parts[value["$ref"].rpartition("/")[2]])
        return {key: put_in(each) for key, each in value.items() if key != "$defs"}

    schema: dict[str, Any] = put_in(whole)
    return schema
