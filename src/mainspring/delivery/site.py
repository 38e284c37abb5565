"""The site that a destination belongs to: what belongs to one owner, as far as names tell.

Names below a registered domain cost nothing, and neither do addresses in a network that is handed out as a whole. What
counts together here is a guess that errs on the side of together: customers of one hosting domain are one site. That
only makes their shares smaller when there is not enough for everybody.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

_NETWORK_BITS: Final = {4: 16, 6: 48}
_REGISTRIES: Final = frozenset(
    [
        "ac",
        "co",
        "com",
        "edu",
        "go",
        "gob",
        "gouv",
        "gov",
        "gv",
        "ltd",
        "mil",
        "ne",
        "net",
        "nhs",
        "nom",
        "or",
        "org",
        "plc",
        "res",
        "sch",
    ]
)
"""Below a country's domain these are registries (co.uk, com.au), and names below them belong to different owners. A
registry that is not listed here counts as one owner."""


def site_of(host: str) -> str:
    """The domain that somebody has registered, or the network of an address."""
    address = _address(host)
    if address is not None:
        return str(ip_network((address, _NETWORK_BITS[address.version]), strict=False))
    labels = host.rstrip(".").split(".")
    is_shared = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _REGISTRIES
    return ".".join(labels[-3:] if is_shared else labels[-2:])


def _address(host: str) -> IPv4Address | IPv6Address | None:
    if not (host[-1:].isdigit() or ":" in host):
        return None  # the last label of a name is never a number
    try:
        return ip_address(host)
    except ValueError:
        return None
