"""Breaks bytes a little, with given random choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

_RARE: Final = (b"\x00", b"\r", b"\n", b"\r\n", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b" ", b"\t", b"\x7f", b":", b'"')
_LONG: Final = (64, 300, 5_000, 70_000)


def mutated(dice: random.Random, data: bytes, tokens: Sequence[bytes] = (), *, most: int = 4) -> bytes:
    """The same with up to this many changes. `tokens` mean something where the bytes go."""
    for _ in range(dice.randint(1, most)):
        data = dice.choice(_CHANGES)(dice, data, tokens)
    return data


def _flip(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = dice.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]


def _insert(dice: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    at = dice.randint(0, len(data))
    return data[:at] + dice.choice((*_RARE, *tokens, dice.randbytes(3))) + data[at:]


def _remove(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    low, high = _slice(dice, data)
    return data[:low] + data[high:]


def _double(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    low, high = _slice(dice, data)
    return data[:high] + data[low:high] + data[high:]


def _repeat(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A short piece, repeated until it is long."""
    at = dice.randint(0, len(data))
    piece = data[at : at + dice.randint(1, 4)]
    return data[:at] + piece * (dice.choice(_LONG) // max(1, len(piece))) + data[at:]


def _cut(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: dice.randint(0, len(data))]


_CHANGES: Final[tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...]] = (
    _flip,
    _flip,
    _insert,
    _insert,
    _remove,
    _double,
    _repeat,
    _cut,
)


def _slice(dice: random.Random, data: bytes) -> tuple[int, int]:
    low = dice.randint(0, len(data))
    return low, min(len(data), low + dice.randint(1, 40))
