"""What callers ask of a store, and which of the requests that wait are worked on together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

GROUP_BYTES: Final = 1_000_000
"""How much is worked on together, unless the database sets another bound. One request is allowed whatever its size."""
LARGE_BYTES: Final = 65_536
LARGE_ITEMS: Final = 200
"""A request with more items or more bytes than this is large."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Request:
    """Something that a caller waits for. Whoever works on it leaves an error here, or an `answer` in the subclass."""

    __slots__ = ("_size", "error", "future", "held", "weight")

    def __init__(self, weight: int = 1, size: int = 0) -> None:
        """`weight` is the number of items that the request counts for."""
        self.weight = weight
        self._size = size
        self.held: Sequence[int] = ()
        """The indexes of items of which nothing was written because somebody's open transaction holds what they name:
        they may be tried again. A request without items has one, at index 0."""
        self.error: Exception | None = None
        self.future: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """The bytes that it writes or reads, where there may be many."""
        return self._size


class Items(Request, Generic[Item, Answer]):
    """Things of one kind, each with an answer."""

    __slots__ = ("answer", "items")
    answer: list[Answer]

    def __init__(self, items: Sequence[Item], size: int = 0) -> None:
        super().__init__(len(items), size)
        self.items = items


R = TypeVar("R", bound=Request)


class Capacity(NamedTuple):
    """What one group holds. A request that needs more is a group of its own."""

    items: int
    bytes: int = GROUP_BYTES
    in_order: bool = False
    """Requests are worked on in the order in which they came, large or not."""


class GroupQueue(Generic[R]):
    """Groups of small requests, and of a few that are large, in turn.

    So whoever writes little waits for what is being written, but not for all that others have asked for. Requests that
    wait at the same time have no order among them: whoever needs one waits for the first answer before asking again.
    """

    def __init__(self, room: Capacity) -> None:
        self._room = room
        self._small: deque[tuple[R, int]] = deque()
        self._large: deque[tuple[R, int]] = deque()
        self._is_turn_of_large = False

    def __bool__(self) -> bool:
        return bool(self._small or self._large)

    def add(self, request: R) -> None:
        size = request.size
        is_large = (size > LARGE_BYTES or request.weight > LARGE_ITEMS) and not self._room.in_order
        (self._large if is_large else self._small).append((request, size))

    def next_group(self) -> list[R]:
        """As many as there is room for, and at least one if there is any."""
        is_large = bool(self._large) and (self._is_turn_of_large or not self._small)
        self._is_turn_of_large = not is_large
        waiting = self._large if is_large else self._small
        group: list[R] = []
        items, bytes_, _ = self._room
        while waiting:
            request, size = waiting[0]
            items -= request.weight
            bytes_ -= size
            if group and (items < 0 or bytes_ < 0):
                break
            group.append(request)
            waiting.popleft()
        return group
