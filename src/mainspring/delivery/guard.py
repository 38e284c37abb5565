"""Where calls may go. The guard reads a URL strictly, and decides on the addresses that are then dialled.

- A URL has one meaning here: the host that was checked is the host that is called and named to the receiver.
- A name is resolved once per connection, all its answers are checked, and only checked addresses are returned:
  an answer that changes later changes nothing. One forbidden address among good ones refuses the name.
- Only public addresses pass, and what the allow-list names. Proxy settings in the environment are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, Literal, NoReturn

from msgspec import Struct

from mainspring import telemetry
from mainspring.delivery.address import LOOPBACK, Address, Network, is_loopback, normalise, parse_ipv4, why_not_public
from mainspring.delivery.lookup import Lookups
from mainspring.delivery.site import site_of
from mainspring.errors import ConfigError, InvalidInput, UnsafeTarget
from mainspring.text import shown_url

URL_LIMIT: Final = 8192
_CACHED_URLS: Final = 16_384
_URL: Final = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?]*)(?P<path>.*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[0-9]{1,5}))?")
_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_][a-z0-9_-]{0,62})*")
_UNSAFE_CHARACTER: Final = re.compile(r"[^\x21-\x7e]|[\\<>\"^`{|}]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Target(Struct, frozen=True):
    """A URL taken apart. Literal addresses are in their one canonical spelling."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path_and_query: str
    host_header: str
    destination: str
    """`host:port`: what shares limits and circuits."""
    site: str
    """The destinations of one site count together."""


class Guard:
    """Decides which targets may be called. `allow` names networks (CIDR) that are open although not public."""

    def __init__(self, *, allow: Sequence[str] = (), allow_loopback: bool = False) -> None:
        self._open: tuple[Network, ...] = tuple(_network(text) for text in allow) + (LOOPBACK if allow_loopback else ())
        self._loopback_names = any(network.overlaps(opened) for network in LOOPBACK for opened in self._of(network))
        self._lookups = Lookups()
        self._parse_cached = lru_cache(maxsize=_CACHED_URLS)(self._parse)

    def check_url(self, url: str) -> Target:
        """Take a URL apart. Raises `InvalidInput` when it is not an acceptable URL, `UnsafeTarget` when it may not be
        called whatever a resolver says."""
        return self._parse_cached(url)

    async def resolve(self, target: Target) -> list[Address]:
        """The addresses of the target, all of them checked, in the resolver's order.

        Raises `UnsafeTarget`, and OSError when the name has no address.
        """
        literal = _literal(target.host)
        if literal is not None:
            self._check(literal)
            return [literal]
        # An answer with a zone (fe80::1%eth0) is link-local: judged without its zone, and refused.
        answers = [ip_address(text.partition("%")[0]) for text in await self._lookups.find(target.host)]
        found = list(dict.fromkeys(normalise(address) for address in answers))
        if not found:
            raise OSError(f"no address for {target.host}")
        for address in found:
            if reason := self._why_not(address):
                # Callers must not learn from us what a name means inside; whoever reads the log may.
                telemetry.warning(
                    "a host name resolves to an address that may not be called",
                    host=target.host,
                    address=address,
                    reason=reason,
                )
                raise UnsafeTarget(
                    f"Expected a public address, got {target.host}, which does not resolve to public addresses only; "
                    "the setting allow_targets (--allow-target) opens networks"
                )
        return found

    def _check(self, address: Address) -> None:
        if reason := self._why_not(address):
            raise UnsafeTarget(f"Expected a public address, got {address}, which is {reason}{_remedy(address, reason)}")

    def _why_not(self, address: Address) -> str:
        """Why an address may not be called; empty when it may."""
        return "" if any(address in network for network in self._of(address)) else why_not_public(address)

    def _of(self, thing: Address | Network) -> list[Network]:
        return [network for network in self._open if network.version == thing.version]

    def _parse(self, url: str) -> Target:
        if len(url) > URL_LIMIT:
            _invalid(f"at most {URL_LIMIT} characters, got {len(url)}")
        if unsafe := _UNSAFE_CHARACTER.search(url):
            _invalid(f"visible ASCII characters (others percent-encoded, names in punycode), got {unsafe[0]!r}")
        if "#" in url:
            _invalid("no fragment: it is never sent, got '#'")
        parts = _URL.fullmatch(url)
        if parts is None:
            _invalid("http:// or https://, a host and a path, got something else")
        scheme: Literal["http", "https"] = "https" if parts["scheme"].lower() == "https" else "http"
        if "@" in parts["authority"]:
            _invalid("no user name or password before the host, got '@'")
        authority = _AUTHORITY.fullmatch(parts["authority"])
        if authority is None:
            _invalid("host or host:port, got something else")  # which may be half of a password
        port = int(authority["port"]) if authority["port"] else _DEFAULT_PORTS[scheme]
        if not 1 <= port <= 65535:
            _invalid(f"a port from 1 to 65535, got {port}")
        host = self._host(authority)
        bracketed = f"[{host}]" if ":" in host else host
        path = parts["path"]
        return Target(
            scheme=scheme,
            host=host,
            port=port,
            path_and_query=path if path.startswith("/") else "/" + path,
            host_header=bracketed if port == _DEFAULT_PORTS[scheme] else f"{bracketed}:{port}",
            destination=f"{bracketed}:{port}",
            site=site_of(host),
        )

    def _host(self, authority: re.Match[str]) -> str:
        """The canonical host, after the checks that need no resolver."""
        literal: Address | None
        try:
            if authority["v6"] is not None:
                if "%" in authority["v6"]:
                    _invalid("an IPv6 address without a zone, got '%'")
                literal = IPv6Address(authority["v6"])
            else:
                literal = parse_ipv4(authority["host"].lower().removesuffix("."))
        except ValueError:
            _invalid(f"an IP address that exists, got {authority[0]!r}")
        if literal is not None:
            literal = normalise(literal)
            self._check(literal)
            return str(literal)
        name = authority["host"].lower().removesuffix(".")
        if not _NAME.fullmatch(name):
            _invalid(f"a host name of letters, digits, hyphens and dots, got {authority['host']!r}")
        if is_loopback(name) and not self._loopback_names:
            raise UnsafeTarget(f"Expected a public address, got {name}, which is loopback{_remedy(name, 'loopback')}")
        return name


def _remedy(place: object, reason: str) -> str:
    """How an operator opens an address. Nobody is told to do that for one that no receiver has."""
    if reason == "loopback":
        return "; the setting allow_loopback (--allow-loopback) opens it"
    is_inside = reason == "private" or reason.startswith("shared")
    return f"; the setting allow_targets (--allow-target {place}) opens it" if is_inside else ""


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError(f"Expected a network such as 10.1.0.0/16, got {shown_url(text)!r}") from error


def _invalid(expected: str) -> NoReturn:
    raise InvalidInput(f"Expected a URL with {expected}")
