"""Which of the requests that wait are worked on together: small ones, or a few that are large, in turn.

So who writes little waits for what is being written, and not for all that others have asked for. Requests that wait at
the same time have no order among them: whoever needs one waits for the first answer before it asks again.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from mainspring.stores.plan import Request

GROUP_BYTES: Final = 1_000_000
"""Of what is worked on together. One goes, whatever its size."""
LARGE_BYTES: Final = 65_536

R = TypeVar("R", bound=Request)


class Waiting(Generic[R]):
    def __init__(self, limit: int) -> None:
        """`limit` is how many items a group may have. One request goes, however many it has."""
        self._limit = limit
        self._small: deque[tuple[R, int]] = deque()
        self._large: deque[tuple[R, int]] = deque()
        self._is_turn_of_large = False

    def __bool__(self) -> bool:
        return bool(self._small or self._large)

    def add(self, request: R) -> None:
        size = request.size
        (self._large if size > LARGE_BYTES else self._small).append((request, size))

    def next_group(self) -> list[R]:
        is_large = bool(self._large) and (self._is_turn_of_large or not self._small)
        self._is_turn_of_large = not is_large
        waiting = self._large if is_large else self._small
        group: list[R] = []
        room, room_bytes = self._limit, GROUP_BYTES
        while waiting:
            request, size = waiting[0]
            room -= request.weight
            room_bytes -= size
            if group and (room < 0 or room_bytes < 0):
                break
            group.append(request)
            waiting.popleft()
        return group
