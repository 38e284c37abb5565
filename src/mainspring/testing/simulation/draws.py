"""Chance: a hash of the seed, of a label, and of how often that label was drawn.

No two labels share a stream, so that leaving something out of a run changes nobody else's luck. Zero is always the
harmless draw: a label that is *muted* draws nothing else, which is how a failing history is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

T = TypeVar("T")


class Draws:
    def __init__(self, seed: int, *, muted: Iterable[str] = ()) -> None:
        self._seed = seed
        self._key = str(seed).encode()
        self._counts: dict[str, int] = {}
        self._muted = tuple(muted)

    def draw(self, label: str, n: int) -> int:
        """A number from 0 to n - 1."""
        count = self._counts.get(label, 0)
        self._counts[label] = count + 1
        if n <= 1 or (self._muted and label.startswith(self._muted)):
            return 0
        return self.at(f"{label}/{count}") % n

    def chance(self, label: str, percent: float) -> bool:
        """True this often. The harmless answer is False."""
        return self.draw(label, 10_000) >= 10_000 - percent * 100

    def choose(self, label: str, among: Sequence[T]) -> T:
        """One of these; the first is the harmless one."""
        return among[self.draw(label, len(among))]

    def at(self, label: str) -> int:
        """The number of a label without a count."""
        return int.from_bytes(blake2b(label.encode(), key=self._key, digest_size=8).digest())

    def order(self, instant: int, name: str) -> int:
        """Who goes first at an instant."""
        return 0 if "order" in self._muted else self.at(f"order/{instant}/{name}")


class Dice(random.Random):
    """A process's dice: jitter can be muted, but the ids that it makes are always its own."""

    def __init__(self, draws: Draws, name: str) -> None:
        self._draws = draws
        self._name = name
        self._bits = 0
        super().__init__()

    def random(self) -> float:
        return self._draws.draw(f"dice/{self._name}", 2**53) / 2**53

    def getrandbits(self, k: int, /) -> int:
        bits = b""
        while len(bits) * 8 < k:
            self._bits += 1
            bits += self._draws.at(f"bits/{self._name}/{self._bits}").to_bytes(8)
        return int.from_bytes(bits) >> (len(bits) * 8 - k)

    def seed(self, *_: object) -> None:
        """It has the seed of the run."""

    def getstate(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def setstate(self, _: tuple[Any, ...]) -> None:
        raise NotImplementedError
