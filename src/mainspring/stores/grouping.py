"""What callers ask of a store, and which of the requests that wait are worked on together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

GROUP_BYTES: Final = 2_000_000
"""What is written together, as far as the database sets no other bound: whoever comes next waits for it."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Request:
    """Something that a caller waits for. Whoever works on it leaves an error here, or an `answer` in the subclass."""

    __slots__ = ("error", "future", "held", "weight")

    def __init__(self, weight: int = 1) -> None:
        """`weight` is the number of items that the request counts for."""
        self.weight = weight
        self.held: Sequence[int] = ()
        """The places of items of which nothing was written because somebody's open transaction holds what they name:
        they may be asked for again. A request without items has one, at place 0."""
        self.error: Exception | None = None
        self.future: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """The bytes that users have given it to write, as far as they can be many."""
        return 0


class Items(Request, Generic[Item, Answer]):
    """Things of one kind, each with an answer."""

    __slots__ = ("_size", "answer", "items")
    answer: list[Answer]

    def __init__(self, items: Sequence[Item], size: int = 0) -> None:
        super().__init__(len(items))
        self.items = items
        self._size = size

    @property
    def size(self) -> int:
        return self._size


R = TypeVar("R", bound=Request)


class Room(NamedTuple):
    """What one group holds. A request that needs more is a group of its own."""

    items: int
    bytes: int = GROUP_BYTES


class Waiting(Generic[R]):
    """Requests in the order in which they came."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._requests: deque[R] = deque()

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: R) -> None:
        self._requests.append(request)

    def next_group(self) -> list[R]:
        """As many as there is room for, and at least one if there is any."""
        group: list[R] = []
        items, size = self._room
        while self._requests:
            request = self._requests[0]
            items -= request.weight
            size -= request.size
            if group and (items < 0 or size < 0):
                break
            group.append(self._requests.popleft())
        return group
