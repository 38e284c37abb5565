"""Who may be connected, and who gives way when there is no room.

Whoever has shown a token is known; everybody else is a stranger. Strangers give way first: at once when all places
are taken, those of the address that has most of them before others, and down to a bound for each address with every
look around. Who gives way has been idle longest, and is due no answer. After them come known peers that are idle, if
it is they who have most of the places. If nobody gives way, a few more are let in, for health checks: they are told
what needs no token, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final, Literal, Protocol

RESERVE: Final = 32
"""Places beyond the limit."""

Admission = Literal["let in", "crowded", "refused"]
"""Crowded: let in for what needs no token."""


class Member(Protocol):
    """A connection."""

    @property
    def network(self) -> str:
        """Whom its peer counts with; see `network_of`."""
        ...

    def gives_way(self, *, known: bool) -> bool:
        """Whether nothing is lost with it but a connection."""
        ...

    def dismiss(self) -> None:
        """Close it now."""
        ...


class Crowd:
    """The connections of one listener, those used last at the end of each list."""

    def __init__(self, *, limit: int, stranger_limit: int) -> None:
        self._limit = limit
        self._stranger_limit = stranger_limit
        self._known: dict[Member, None] = {}
        self._strangers: dict[str, dict[Member, None]] = {}
        self._size = 0

    def admit(self, member: Member) -> Admission:
        """Find a place for a stranger."""
        has_room = self._size < self._limit or self._make_room()
        if not has_room and self._size >= self._limit + RESERVE:
            return "refused"
        self._strangers.setdefault(member.network, {})[member] = None
        self._size += 1
        return "let in" if has_room else "crowded"

    def recognise(self, member: Member) -> None:
        """It has shown a token."""
        if self._forget_stranger(member):
            self._known[member] = None

    def touch(self, member: Member) -> None:
        """It was used just now."""
        group = self._known if member in self._known else self._strangers.get(member.network, {})
        if member in group:
            del group[member]
            group[member] = None

    def leave(self, member: Member) -> None:
        if member in self._known:
            del self._known[member]
        elif not self._forget_stranger(member):
            return
        self._size -= 1

    def look_around(self) -> None:
        """Have the strangers of each address give way down to the bound."""
        for group in tuple(self._strangers.values()):
            for _ in range(len(group) - self._stranger_limit):
                if not self._dismiss_one(group, known=False):
                    break

    def _make_room(self) -> bool:
        largest_first = sorted(self._strangers.values(), key=len, reverse=True)
        if any(self._dismiss_one(group, known=False) for group in largest_first):
            return True
        # Else a rush of strangers, too fresh to give way, would drive out those who are known.
        return 2 * len(self._known) > self._limit and self._dismiss_one(self._known, known=True)

    def _dismiss_one(self, group: Iterable[Member], *, known: bool) -> bool:
        member = next((member for member in group if member.gives_way(known=known)), None)
        if member is None:
            return False
        self.leave(member)
        member.dismiss()
        return True

    def _forget_stranger(self, member: Member) -> bool:
        group = self._strangers.get(member.network, {})
        if member not in group:
            return False
        del group[member]
        if not group:
            del self._strangers[member.network]
        return True


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 what one customer gets, which is a /64."""
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.packed[:8].hex()
