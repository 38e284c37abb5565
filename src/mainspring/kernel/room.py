"""What the window has of one thing: places for rows, or bytes for large ones; and who has how much of it queued.

Who gets room: a lane takes rows as long as it holds no more than it leaves free, and the same holds for its site and
its namespace (see `shares`). When there is none left, a row takes the place of the last row of the heaviest, if that is
heavier by two such rows: of the heaviest namespace, or else of the heaviest site in its own namespace, or else of the
heaviest lane there. A lane weighs what it has queued and, while it has something queued, also its call, or the bytes of
its calls. So long queues, and crowds of one site, shrink to make room for those that have little; one that has nothing
at all is kept out only by others that have one row each, and no call.
"""

from __future__ import annotations

from mainspring.kernel.lanes import LaneState, LargePart
from mainspring.kernel.shares import Party, Tier

Queued = LaneState | LargePart


class Room:
    def __init__(self, limit: int, everybody: Party) -> None:
        self.limit = limit
        self.everybody = everybody
        self.used = 0
        self._rows = 0
        self.queues = 0
        """Lanes that have something queued."""

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def typical(self) -> int:
        """What a row takes."""
        return max(1, self.used // max(1, self._rows))

    def take(self, size: int) -> None:
        self.used += size
        self._rows += 1

    def give_back(self, size: int) -> None:
        self.used -= size
        self._rows -= 1

    def has_room(self, who: Queued, tier: Tier, queued: int) -> bool:
        """Whether a lane that has this much queued may have another row."""
        free = tier.part_of(self.limit) - self.used
        return queued < free and self._have_room(who.site, free)

    def _have_room(self, party: Party, free: int) -> bool:
        """Whether a party and the one around it may take in another row, if this much is free."""
        for one in (party, *party.around):  # noqa: SIM110 - for every row that is offered
            if not one.has_room(free, one.weight):
                return False
        return True

    def wanted_by(self, party: Party, tier: Tier) -> bool:
        """Whether there is room for lanes of a party that have nothing queued."""
        may_have_call = tier is not Tier.UNTRIED and not party.is_large
        free = tier.part_of(self.limit) - self.used
        return self._have_room(party, free) or self.heavier(party, 0, int(may_have_call), self.typical) is not None

    def heavier(self, party: Party, weight: int, with_calls: int, size: int) -> Party | None:
        """The outermost party in which somebody else can give way to a row of this size, from a member of this party
        that weighs this much: perhaps nothing, but once it has a row it also weighs what its calls do."""
        outside_in = (*reversed(party.around), party)
        for one, inside in zip(outside_in, (*outside_in[1:], None), strict=True):
            # By two, so that the other cannot take it back.
            if one.members.top >= (weight if inside is None else inside.weight) - weight + with_calls + 2 * size:
                return one
        return None

    @staticmethod
    def heaviest(party: Party) -> Queued:
        """The heaviest lane of the heaviest member of a party."""
        heavy = party.members.heaviest
        while isinstance(heavy, Party):
            heavy = heavy.members.heaviest
        assert isinstance(heavy, LaneState | LargePart)
        return heavy
