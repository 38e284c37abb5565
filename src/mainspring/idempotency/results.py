"""Which results can be kept: those that come back from the store equal to what went in.

Without a `result_type` these are the values of JSON: None, bool, int, float, text, lists and dictionaries with text as
keys; and bytes, as the whole result. With one it is whatever msgspec reads as that type: dataclasses, structs, dates,
Decimal, UUID, enums, tuples, sets and so on. A tuple without a type would come back as a list, so it is refused.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainspring.errors import InvalidInput

Form = Literal["json", "bytes"]


class ResultCodec:
    """Writes results and reads them, and refuses those that would not come back."""

    def __init__(self, result_type: Any = Any) -> None:
        """`result_type` is anything that msgspec accepts as a type."""
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(result_type).decode

    def write(self, result: object) -> tuple[Form, bytes]:
        """Raises `InvalidInput` for a result that would not come back."""
        if type(result) is bytes:
            return "bytes", result
        try:
            body = self._encode(result)
            returned = self._decode(body)
            same = bool(returned == result)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"Expected a result that can be kept, got {_kind(result)}: {error}") from error
        if not same:
            raise InvalidInput(
                f"Expected a result that comes back as it was, got {_kind(result)}, which comes back as another value: "
                "say result_type=, or return values of JSON or bytes"
            )
        return "json", body

    def read(self, form: Form, body: bytes) -> Any:
        return self._decode(body) if form == "json" else body


def _kind(result: object) -> str:
    return type(result).__qualname__
