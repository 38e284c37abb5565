"""Requests and responses for synchronous handlers: the whole body is there, and nothing waits.

A response is a response whatever its body is: malformed JSON raises when `json()` is called, not before.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, Final

import msgspec
from msgspec import UNSET

from mainspring.errors import InvalidInput
from mainspring.fetches.messages import Method, ResponseView

_JSON: Final = "application/json"


class Headers(Mapping[str, str]):
    """Header fields by case-insensitive name."""

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._fields = {name.lower(): value for name, value in (fields or {}).items()}

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"


class _Body:
    """Bytes, and the content type by which they are read."""

    def __init__(self, headers: Headers, body: bytes) -> None:
        self.headers = headers
        self._body = body

    def bytes(self) -> bytes:
        return self._body

    def text(self) -> str:
        """By the charset of the content type, else UTF-8; bytes that are neither become replacement characters."""
        return self._body.decode(_charset(self.headers.get("content-type", "")), errors="replace")

    def json(self) -> Any:
        """The body as JSON, whatever the content type says. Raises `InvalidInput` if it is not JSON."""
        try:
            return msgspec.json.decode(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"Expected JSON in the body, got something else: {error}") from error


class RequestSync(_Body):
    """A request to be made.

    `body` is bytes or text; `json` is encoded as JSON. The content type follows from these unless `headers` sets one.
    """

    def __init__(
        self,
        url: str,
        *,
        method: Method | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        json: Any = UNSET,
        max_redirects: int = 0,
    ) -> None:
        """Without a method, it is a GET, or a POST if there is a body."""
        if body is not None and json is not UNSET:
            raise InvalidInput("Expected at most one of body and json, got both")
        data = msgspec.json.encode(json) if json is not UNSET else body.encode() if isinstance(body, str) else body
        kind = _JSON if json is not UNSET else "text/plain; charset=utf-8" if isinstance(body, str) else ""
        fields = dict(headers or {})
        if kind and "content-type" not in Headers(fields):
            fields["content-type"] = kind
        super().__init__(Headers(fields), data or b"")
        self.url = url
        self.method: Method = method or ("GET" if data is None else "POST")
        self.max_redirects = max_redirects

    def __repr__(self) -> str:
        return f"<RequestSync {self.method} {self.url}>"


class ResponseSync(_Body):
    """A response, whatever its status. `url` is where it came from, `redirected` whether it was redirected there."""

    def __init__(
        self,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        url: str = "",
        redirected: bool = False,
        truncated: bool = False,
        req_id: str = "",
        set_cookies: Sequence[str] = (),
        body_problem: str = "",
    ) -> None:
        super().__init__(Headers(headers), body)
        self.status = status
        self.url = url
        self.redirected = redirected
        self.truncated = truncated
        """The body is not the whole one: it was longer, there was no room for it, or see `body_problem`."""
        self.req_id = req_id
        self.set_cookies = tuple(set_cookies)
        """Each on its own; `headers` joins them with commas."""
        self.body_problem = body_problem
        """Why the body broke off or could not be read, if it was."""

    @classmethod
    def of(cls, view: ResponseView, *, req_id: str) -> ResponseSync:
        """From what was stored."""
        body = base64.b64decode(view.body_base64) if view.body_base64 is not None else (view.body or "").encode()
        return cls(
            view.status,
            headers=view.headers,
            body=body,
            url=view.url,
            redirected=view.redirected,
            truncated=view.truncated,
            req_id=req_id,
            set_cookies=view.set_cookies,
            body_problem=view.body_problem,
        )

    @property
    def ok(self) -> bool:
        """The status is 2xx."""
        return 200 <= self.status < 300

    def __repr__(self) -> str:
        return f"<ResponseSync {self.status} {self.url}>"


def _charset(content_type: str) -> str:
    header = Message()
    header["content-type"] = content_type
    found = header.get_param("charset")
    try:
        return codecs.lookup(str(found)).name if found else "utf-8"
    except LookupError:
        return "utf-8"
