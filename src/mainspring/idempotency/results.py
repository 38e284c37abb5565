"""Which results can be kept: those that come back from the store equal to what went in.

Without a `result_type` these are the values of JSON: None, bool, int, float, text, lists and dictionaries with text as
keys; and bytes, as the whole result. With one it is whatever msgspec reads as that type: dataclasses, structs, attrs
classes, dates, Decimal, UUID, enums, tuples, sets and so on; and also pydantic models, paths and IP addresses. For
other types a program says what stands for a value (`encode`), and how it is made again (`decode`). A tuple without a
type would come back as a list, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mainspring.errors import InvalidInput
from mainspring.idempotency.entries import Form, ResultKind
from mainspring.idempotency.keys import Encode, is_ip, is_model, is_path

Decode = Callable[[Any, Any], Any]
"""Makes a value of a type from what stands for it."""


class ResultCodec:
    """Writes results and reads them, and refuses those that would not come back."""

    def __init__(self, result_type: Any = Any, *, encode: Encode | None = None, decode: Decode | None = None) -> None:
        """`result_type` is anything that msgspec accepts as a type."""
        self.kept_as: ResultKind = getattr(result_type, "kept_as", "bytes" if result_type is bytes else "json")
        self._own_encode = encode
        self._own_decode = decode
        self._encode = msgspec.json.Encoder(enc_hook=self._plain).encode
        self._decode = msgspec.json.Decoder(result_type, dec_hook=self._made).decode

    def write(self, result: object) -> tuple[Form, bytes]:
        """Raises `InvalidInput` for a result that would not come back."""
        if type(result) is bytes:
            return "bytes", result
        try:
            body = self._encode(result)
            returned = self._decode(body)
            same = bool(returned == result)
        except (
            TypeError,
            ValueError,
            OverflowError,
            NotImplementedError,
            msgspec.MsgspecError,
            RecursionError,
        ) as error:
            raise InvalidInput(f"Expected a result that can be kept, got {_kind(result)}: {error}") from error
        if not same:
            raise InvalidInput(
                f"Expected a result that comes back as it was, got {_kind(result)}, which comes back as another value: "
                "say result_type=, or return values of JSON or bytes"
            )
        return "json", body

    def read(self, form: Form, body: bytes) -> Any:
        return self._decode(body) if form == "json" else body

    def _plain(self, value: Any) -> Any:
        """What msgspec asks about a value that it does not know."""
        if is_model(type(value)):
            return model_as_json(value)
        if is_path(type(value)) or is_ip(type(value)):
            return str(value)
        if self._own_encode is None:
            raise NotImplementedError(f"{_kind(value)} is no value of JSON: say encode= and decode=")
        return self._own_encode(value)

    def _made(self, kind: Any, value: Any) -> Any:
        """What msgspec asks about a type that it does not know."""
        if is_model(kind):
            return kind.model_validate_json(msgspec.json.encode(value))  # as JSON, in which a strict model takes dates
        if is_path(kind) or is_ip(kind):
            return kind(value)
        if self._own_decode is None:
            raise NotImplementedError(f"{getattr(kind, '__qualname__', kind)} cannot be read from JSON: say decode=")
        return self._own_decode(kind, value)


def model_as_json(model: Any) -> Any:
    """The values of JSON from which the model can be made again."""
    return model.model_dump(mode="json", by_alias=True, round_trip=True)


def _kind(result: object) -> str:
    return type(result).__qualname__
