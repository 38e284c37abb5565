"""Which of the requests that wait are worked on together: small ones first, and beside them little that is large.

So who writes little waits for what is being written, and not for all that others have asked for. Requests that wait at
the same time have no order among them: whoever needs one waits for the first answer before it asks again.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from mainspring.stores.plan import Request

GROUP_BYTES: Final = 1_000_000
"""Of small requests, and of large ones. One goes, whatever its size."""
LARGE_BYTES: Final = 65_536

R = TypeVar("R", bound=Request)


class Waiting(Generic[R]):
    def __init__(self, limit: int) -> None:
        """`limit` is how many items the small requests of a group may have."""
        self._limit = limit
        self._small: deque[R] = deque()
        self._large: deque[R] = deque()

    def __bool__(self) -> bool:
        return bool(self._small or self._large)

    def add(self, request: R) -> None:
        (self._large if request.size > LARGE_BYTES else self._small).append(request)

    def next_group(self) -> list[R]:
        """In each there is one of the large ones, if there are any: nobody waits for ever."""
        group: list[R] = []
        weight = size = 0
        small, large = self._small, self._large
        while small and (not group or (weight + small[0].weight <= self._limit and size < GROUP_BYTES)):
            request = small.popleft()
            group.append(request)
            weight += request.weight
            size += request.size
        if large:
            size = large[0].size
            group.append(large.popleft())
        while large and size + large[0].size <= GROUP_BYTES:
            size += large[0].size
            group.append(large.popleft())
        return group
