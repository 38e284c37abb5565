"""Reads one HTTP/1.1 answer after another from the bytes of a connection. Waits for nothing, writes nothing.

The grammar is llhttp's (httptools). This module adds bounds: whatever the other side sends, an answer holds at most
`FRAMING_LIMIT` bytes outside its body, `HEADER_LIMIT` headers, `limit` bytes of body before and after decompression,
`MEMBER_LIMIT` gzip members, and `INTERIM_LIMIT` interim (1xx) answers. A body over its bound is cut and the status
still counts; everything else is unreadable, and `broken` has what came of it.
"""

from __future__ import annotations

import zlib
from typing import Final

import httptools

from mainspring.delivery.call import BrokenAnswer

FRAMING_LIMIT: Final = 65_536
HEADER_LIMIT: Final = 256
"""Each costs one to three objects, however few bytes it has."""
INTERIM_LIMIT: Final = 16
MEMBER_LIMIT: Final = 64
"""Each costs a copy of what follows it, however little it holds."""
LITTLE: Final = 4096
"""A body or a head of this many bytes needs no room reserved for it."""
FIRST_ROOM: Final = 65_536
"""How much a body asks for before it asks for all that it may take."""
SHOWN_LIMIT: Final = 60
HIGHEST_STATUS: Final = 599
_WINDOW_BITS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_names: dict[bytes, str] = {}
_CACHED_NAMES: Final = 1024


class TooManyMembers(zlib.error):
    """More members of gzip than anybody needs."""


class UnreadableAnswer(Exception):
    """The bytes are not a usable answer. The message is for people."""


class AnswerReader:
    """Feed it bytes until `complete`; `begin` makes it ready for the next answer on the same connection."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self.begin(bodiless=False)

    def begin(self, *, bodiless: bool) -> None:
        """Expect an answer; `bodiless` to a HEAD request."""
        self._bodiless = bodiless
        self._received = 0
        self.body_size = 0
        self._interim = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._large_head = 0
        """The bytes of the headers, if they are not few."""
        self._head_over = False
        self._body = bytearray()
        self._is_packed = False
        self._protest = ""
        self.status = 0
        self.complete = False
        self.truncated = False
        self.reusable = False
        """The connection may carry another request."""

    def feed(self, data: bytes | memoryview) -> bool:
        """Take bytes; True when the answer is complete. Raises `Unreadable`."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._protest = "a switch to another protocol"
        except httptools.HttpParserError:
            # Rubbish after a complete answer spoils the connection, not the answer.
            self.reusable = False
            if not self.complete:
                self._protest = "something else"
        if self._protest:
            raise UnreadableAnswer(f"Expected an HTTP/1.1 answer, got {self._protest}")
        if not self.complete and self._received - self.body_size > FRAMING_LIMIT:
            if not self._head_over:
                raise UnreadableAnswer(f"Expected at most {FRAMING_LIMIT} bytes of headers, got more")
            self._cut()
        return self.complete

    def end(self) -> bool:
        """The other side has closed in good order; True when that completes the answer."""
        if self._head_over and not self.complete:
            framed = {name.lower() for name, _ in self._headers} & {b"content-length", b"transfer-encoding"}
            self.complete = not framed
        return self.complete

    def result(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of a complete answer. Raises `Unreadable`."""
        headers = self._joined_headers()
        body = bytes(self._body)
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise UnreadableAnswer(
                f"Expected a chunked answer, got transfer-encoding {_shown(headers['transfer-encoding'])}"
            )
        if "content-encoding" in headers:
            body = self._decompress(headers["content-encoding"].lower(), body)
        return headers, body

    @property
    def set_cookies(self) -> tuple[str, ...]:
        """Each as it came: joined, as the other headers are, they could not be told apart."""
        cookies = (value for name, value in self._headers if name.lower() == b"set-cookie")
        return tuple(cookie.decode("latin-1").strip(" \t") for cookie in cookies)

    def broken(self, *, with_body: bool) -> BrokenAnswer | None:
        """What has come of an answer that will not be complete or is unreadable; None if its head has not come."""
        if not self._head_over or self.status > HIGHEST_STATUS:
            return None
        body = bytes(self._body) if with_body else b""
        return BrokenAnswer(self.status, self._joined_headers(), self.set_cookies, body)

    def _joined_headers(self) -> dict[str, str]:
        values: dict[str, list[str]] = {}
        for raw_name, raw_value in self._headers:
            name = _names.get(raw_name) or _name(raw_name)
            values.setdefault(name, []).append(raw_value.decode("latin-1").strip(" \t"))
        return {name: ", ".join(several) for name, several in values.items()}

    @property
    def wanted(self) -> int:
        """How many bytes there should be room for by now: a few at first, later all that may come. So an answer that
        waits for more holds little, which nobody counts meanwhile. What the head promises is believed only when some
        of it has come. A compressed body may turn out to have any length."""
        if not self._head_over or self._bodiless or (self.body_size <= LITTLE and not self._is_packed):
            return self._large_head
        if self.complete:
            is_unknown = self._is_packed and self.body_size
            return self._large_head + (self._limit if is_unknown else min(self.body_size, self._limit))
        return self._large_head + (FIRST_ROOM if self.body_size <= FIRST_ROOM else self._most())

    def _most(self) -> int:
        """How many bytes of body may come; the parser has checked that a length is a number."""
        lengths = (int(value) for name, value in self._headers if name.lower() == b"content-length")
        return min(next(lengths, self._limit), self._limit)

    def cut(self, *, keep: bool = False) -> None:
        """Do without the rest of the body, or all of it: the status and the headers are known."""
        if not keep:
            self._body = bytearray()
        self._cut()

    def drop(self) -> None:
        """Let go of the body and the headers. The parser and this object refer to each other, so they would stay until
        garbage is collected."""
        self._body = bytearray()
        self._headers = []

    def _decompress(self, encoding: str, body: bytes) -> bytes:
        if encoding in ("", "identity") or not body:
            return body
        if encoding not in _WINDOW_BITS:
            raise UnreadableAnswer(f"Expected an uncompressed answer, got content-encoding {_shown(encoding)}")
        try:
            plain, whole = decompress(body, _WINDOW_BITS[encoding], self._limit)
        except zlib.error as error:
            what = str(error) if isinstance(error, TooManyMembers) else "something else"
            raise UnreadableAnswer(f"Expected {encoding} data, as the answer declared, got {what}") from error
        if not whole and not self.truncated and len(plain) < self._limit:
            raise UnreadableAnswer(f"Expected {encoding} data, as the answer declared, got only part of it")
        self.truncated = self.truncated or not whole
        return plain

    def _cut(self) -> None:
        self.truncated = self.complete = True
        self.reusable = False

    # What the parser calls. None of them may raise.

    def on_message_begin(self) -> None:
        if self.complete:
            # A second answer to one request: the connection is not in step with us.
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_over:  # trailers are not headers
            return
        if len(self._headers) < HEADER_LIMIT:
            self._headers.append((name, value))
        else:
            self._protest = f"more than {HEADER_LIMIT} headers"

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = status = self._parser.get_status_code()
        if not 100 <= status <= HIGHEST_STATUS:
            self._protest = f"the status {status}"
        self._head_over = status >= 200
        size = sum(len(name) + len(value) for name, value in self._headers)
        self._large_head = size if self._head_over and size > LITTLE else 0
        packings = (value for name, value in self._headers if name.lower() == b"content-encoding")
        self._is_packed = any(packing.strip().lower() not in (b"", b"identity") for packing in packings)
        if self._bodiless and self._head_over:
            # The parser does not know about HEAD and would wait for the body: it cannot be used again.
            self.complete = True

    def on_body(self, data: bytes) -> None:
        self.body_size += len(data)
        if self.complete:
            return
        if self.body_size > self._limit:
            data = data[: self._limit - self.body_size]
            self._cut()
        self._body += data

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.status < 200:
            self._interim += 1
            self._headers.clear()
            if self.status == 101 or self._interim > INTERIM_LIMIT:
                self._protest = "a switch to another protocol" if self.status == 101 else "too many interim answers"
            return
        self.complete = True
        self.reusable = self._parser.should_keep_alive()


def decompress(data: bytes, window_bits: int, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes of what `data` unpacks to, and whether that is all of it. Raises `zlib.error`."""
    try:
        stream = zlib.decompressobj(window_bits)
        plain = stream.decompress(data, limit + 1)
    except zlib.error:
        if window_bits != 15:
            raise
        # Half the world reads "deflate" as deflate without the zlib wrapper.
        stream = zlib.decompressobj(-15)
        plain = stream.decompress(data, limit + 1)
    members = 1
    while stream.eof and stream.unused_data and window_bits == 31 and len(plain) <= limit:  # gzip members in a row
        members += 1
        if members > MEMBER_LIMIT:
            raise TooManyMembers(f"more than {MEMBER_LIMIT} members")
        rest = stream.unused_data
        stream = zlib.decompressobj(window_bits)
        plain += stream.decompress(rest, limit + 1 - len(plain))
    return plain[:limit], stream.eof and len(plain) <= limit


def _shown(value: str) -> str:
    """A value from the other side, in quotation marks and cut."""
    return repr(value if len(value) <= SHOWN_LIMIT else f"{value[:SHOWN_LIMIT]}…")


def _name(raw: bytes) -> str:
    name = raw.decode("latin-1").lower()
    if len(_names) < _CACHED_NAMES:
        _names[raw] = name
    return name
