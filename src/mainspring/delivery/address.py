"""Which addresses are public. A table, because `ipaddress.is_global` says yes to several that reach inside.

IPv4 is refused by list. IPv6 is the other way round: only global unicast (2000::/3) can be public, less the parts
of it that are set aside or that carry an IPv4 address through a tunnel. Two embeddings are unwrapped and their IPv4
address checked: NAT64, by which public hosts are reached, and ISATAP, which any network may use below its own prefix.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: Final[tuple[Network, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_V4: Final = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("169.254.169.254/32", "a cloud's metadata service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6: Final = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "an embedded IPv4 address"),
        ("2001::/32", "a Teredo tunnel"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "reserved for documentation"),
        ("2002::/16", "a 6to4 tunnel"),
        ("3fff::/20", "reserved for documentation"),
        ("fd00:ec2::254/128", "a cloud's metadata service"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = 0x0000_5EFE
_ISATAP_MASK: Final = 0xFCFF_FFFF
"""A mask for the bits before the IPv4 address: the universal and group bits may be anything (::5efe:… and
::200:5efe:…)."""


def normalise(address: Address) -> Address:
    """An IPv4-mapped IPv6 address is dialled as IPv4, so it is judged as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def why_not_public(address: Address) -> str:
    """What kind of address this is, in words; empty when it is public."""
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), "")
    if address in _NAT64:
        return why_not_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    for network, reason in _V6:
        if address in network:
            return reason
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    if int(address) >> 32 & _ISATAP_MASK == _ISATAP:
        return why_not_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return ""


def parse_ipv4(host: str) -> IPv4Address | None:
    """The IPv4 address that resolvers make of `host`, in any spelling; None when `host` is a name.

    One to four numbers, decimal, octal or hexadecimal, the last of which fills all remaining bytes: `127.1`,
    `2130706433` and `0x7f.0.0.1` are all 127.0.0.1. Raises ValueError for what looks like a number but is not one.
    """
    labels = host.split(".")
    if not (labels[-1].isdigit() or labels[-1].startswith("0x")):
        return None
    numbers = [_number(label) for label in labels]
    *leading, last = numbers
    if len(numbers) > 4 or any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        raise ValueError(host)
    return IPv4Address(sum(number << 8 * (3 - place) for place, number in enumerate(leading)) + last)


def _number(label: str) -> int:
    # Longer than any 32-bit number in octal: no need to read thousands of digits.
    if not label.isalnum() or len(label) > 16:
        raise ValueError(label)
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)
