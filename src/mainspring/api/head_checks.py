"""What is wrong with the head of a request, before anybody looks at what it asks for.

Two servers that read one request differently are how requests are smuggled, so what has two readings is refused: a
header that counts and comes twice, a request that names no host, a version of HTTP that has no headers. A server on
loopback answers only to its own names: a page in a browser can have its own name point at 127.0.0.1, and would
otherwise speak to the server as if it were the page's own (DNS rebinding).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mainspring.delivery.address import is_loopback

Headers = Sequence[tuple[bytes, bytes]]
Hosts = frozenset[str] | None
"""Names that a loopback server answers to in addition to those of loopback; None: every name."""

_HOST: Final = b"host"
_ENCODING: Final = b"content-encoding"
_CHUNKED: Final = b"transfer-encoding"
"""HTTP/1.0 has no chunks: a server of that version that passes a request on may see its end elsewhere."""
_COUNTING: Final = frozenset({_HOST, _ENCODING, b"authorization", b"content-type", b"idempotency-key"})
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]*)(?::[0-9]{0,5})?")


class Objection(NamedTuple):
    """Why a request is refused: the code of the problem, and words."""

    code: str
    detail: str


def objection(
    version: str, headers: Headers, fields: Mapping[bytes, bytes], *, authority: bytes | None, hosts: Hosts
) -> Objection | None:
    """What is wrong with a head, or nothing. `fields` are the headers by name; `authority` is the host in the target,
    which overrides the header."""
    if version not in ("1.1", "1.0"):
        return _invalid(f"Expected HTTP/1.1, got HTTP/{version}")
    if len(fields) < len(headers):
        names = [name for name, _ in headers]
        repeated = next((name for name in names if name in _COUNTING and names.count(name) > 1), None)
        if repeated is not None:
            return _invalid(f"Expected one {repeated.decode()} header, got two")
    if version == "1.0" and _CHUNKED in fields:
        return _invalid("Expected no transfer-encoding header with HTTP/1.0, got one")
    if fields.get(_ENCODING, b"identity").lower() != b"identity":
        return Objection("unsupported_media_type", "Expected a body without content-encoding, got an encoded one")
    host = fields.get(_HOST)
    if host is None:
        return None if version == "1.0" else _invalid("Expected one host header, got none")
    return _of_host(host if authority is None else authority, hosts)


def names_of(urls_and_hosts: Iterable[str]) -> frozenset[str]:
    """The names in hosts and URLs, as they are compared."""
    return frozenset(filter(None, (_name(text.partition("://")[2] or text) for text in urls_and_hosts)))


def hosts_on(host: str, further: Iterable[str] = ()) -> Hosts:
    """The names that a server which listens there answers to: on loopback its own and further ones, elsewhere all."""
    return names_of((host, *further)) if is_loopback(host) else None


@lru_cache(maxsize=1024)
def _of_host(value: bytes, hosts: Hosts) -> Objection | None:
    name = _name(value.decode("latin-1").strip(" \t"))
    if name is None:
        return _invalid("Expected a host name or an address in the host header, got something else")
    if hosts is None or name in hosts or is_loopback(name):
        return None
    return Objection(
        "misdirected",
        "Expected a name of this server in the host header, got another; further names are set by allow_hosts",
    )


def _name(text: str) -> str | None:
    found = _AUTHORITY.fullmatch(text.rstrip("/"))
    return found[1].strip("[]").lower().removesuffix(".") if found else None


def _invalid(detail: str) -> Objection:
    return Objection("invalid_input", detail)
