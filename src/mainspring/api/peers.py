"""Who may be connected, and who gives way when there is no room.

Whoever has shown a token is known; everybody else is a stranger. Strangers give way first: at once when all places
are taken, beginning with the address that has most of them, and down to a bound for each address at every sweep. The
one that gives way has been idle longest, and is due no answer; one that is above the bound and always busy gets one
more answer, and is closed with it. After them come known peers that are idle, if it is they who have most of the
places. If nobody gives way, a few more are let in and are told what needs no token, so that health checks are
answered. A peer that shows a token there, or comes when these places are taken, too, gets the place of a stranger that
has just connected and said nothing yet, or waits for its turn between two answers: in a rush everybody has just
connected, and in a crowd that keeps asking nobody is idle. If all of them are being answered, a peer that shows a
token keeps its extra place, and one of them leaves with its answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address
from itertools import chain, islice
from typing import Final, Protocol

RESERVE: Final = 32
"""Places beyond the limit."""
SENT_AWAY: Final = 128
"""How many strangers of one address leave in one sweep: if all came back at once, they would hold up the loop."""
LOOKED_AT: Final = 256
"""How many strangers are asked before a newcomer hears that none gives way: a crowd must not make coming costly."""


class Peer(Protocol):
    """A connection."""

    @property
    def network(self) -> str:
        """Whom its peer counts with; see `network_of`."""
        ...

    def gives_way(self, *, known: bool, pressed: bool) -> bool:
        """Whether nothing is lost with it but a connection; if pressed, even if it has just been made."""
        ...

    def dismiss(self) -> None:
        """Close it now."""
        ...


class Peers:
    """The connections of one listener, those used last at the end of each list."""

    def __init__(self, *, limit: int, stranger_limit: int) -> None:
        self._limit = limit
        self._stranger_limit = stranger_limit
        self._known: dict[Peer, None] = {}
        self._strangers: dict[str, dict[Peer, None]] = {}
        self._beyond: set[Peer] = set()
        """Strangers who get one more answer: those who came when all places were taken, and those above the bound."""
        self._size = 0

    def admit(self, peer: Peer) -> bool:
        """Let a stranger in, unless there is no place at all."""
        full = self._size >= self._limit and not self._make_room()
        if full and self._size >= self._limit + RESERVE and not self._make_room(pressed=True):
            return False
        if full:
            self._beyond.add(peer)
        self._strangers.setdefault(peer.network, {})[peer] = None
        self._size += 1
        return True

    def is_beyond(self, peer: Peer) -> bool:
        """Whether its next answer is the last."""
        return peer in self._beyond

    def is_known(self, peer: Peer) -> bool:
        """Whether it has shown a token."""
        return peer in self._known

    def recognise(self, peer: Peer) -> bool:
        """It has shown a token: whether there is a place for it."""
        must_have_place = self.is_beyond(peer) and self._size > self._limit
        if must_have_place and not self._make_room(pressed=True) and not self._send_one_away(peer):
            return False
        if self._forget_stranger(peer):
            self._known[peer] = None
        return True

    def touch(self, peer: Peer) -> None:
        """It was used just now."""
        group = self._known if peer in self._known else self._strangers.get(peer.network, {})
        if peer in group:
            del group[peer]
            group[peer] = None

    def leave(self, peer: Peer) -> None:
        if peer in self._known:
            del self._known[peer]
        elif not self._forget_stranger(peer):
            return
        self._size -= 1

    def look_around(self) -> None:
        """Have the strangers of each address give way down to the bound; busy ones after their answer."""
        for group in tuple(self._strangers.values()):
            bound = max(self._stranger_limit, len(group) - SENT_AWAY)
            for peer in tuple(group):
                if len(group) <= bound:
                    break
                if peer.gives_way(known=False, pressed=False):
                    self.leave(peer)
                    peer.dismiss()
            self._beyond.update(islice(group, max(0, len(group) - bound)))

    def _make_room(self, *, pressed: bool = False) -> bool:
        largest_first = sorted(self._strangers.values(), key=len, reverse=True)
        longest_idle_first = islice(chain.from_iterable(largest_first), LOOKED_AT)
        if self._dismiss_one(longest_idle_first, known=False, pressed=pressed):
            return True
        # Otherwise busy strangers would drive out those who are known.
        return 2 * len(self._known) > self._limit and self._dismiss_one(self._known, known=True)

    def _send_one_away(self, newcomer: Peer) -> bool:
        """Have a busy stranger leave with its answer, so that its place is soon free; returns whether there is one."""
        largest_first = sorted(self._strangers.values(), key=len, reverse=True)
        for stranger in islice(chain.from_iterable(largest_first), LOOKED_AT):
            if stranger is not newcomer and stranger not in self._beyond:
                self._beyond.add(stranger)
                return True
        return False

    def _dismiss_one(self, group: Iterable[Peer], *, known: bool, pressed: bool = False) -> bool:
        peer = next((peer for peer in group if peer.gives_way(known=known, pressed=pressed)), None)
        if peer is None:
            return False
        self.leave(peer)
        peer.dismiss()
        return True

    def _forget_stranger(self, peer: Peer) -> bool:
        group = self._strangers.get(peer.network, {})
        if peer not in group:
            return False
        del group[peer]
        self._beyond.discard(peer)
        if not group:
            del self._strangers[peer.network]
        return True


def network_of(address: str) -> str:
    """What counts as one address: for IPv6 what one customer gets, which is a /64."""
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.packed[:8].hex()
