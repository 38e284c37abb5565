"""Numbers that nobody foresees, drawn for many at once."""

from __future__ import annotations

import os

import pytest

from mainspring.cluster.surroundings import Unpredictable


def test_a_thousand_numbers_take_a_few_calls_into_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lets another thread have the interpreter, which may keep it for milliseconds."""
    calls = 0
    urandom = os.urandom

    def counted(size: int) -> bytes:
        nonlocal calls
        calls += 1
        return urandom(size)

    monkeypatch.setattr(os, "urandom", counted)
    monkeypatch.setattr("random._urandom", counted)
    chance = Unpredictable()
    drawn = {chance.getrandbits(128) for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(0 <= chance.random() < 1 for _ in range(100))
    assert calls <= 5


@pytest.mark.parametrize("bits", [0, 1, 2, 53, 62, 127, 128, 129, 1000])
def test_a_number_has_so_many_bits(bits: int) -> None:
    chance = Unpredictable()
    drawn = [chance.getrandbits(bits) for _ in range(300)]
    assert max(drawn).bit_length() <= bits
    assert max(drawn).bit_length() >= bits - 10
    assert min(drawn) >= 0


def test_a_forked_process_draws_its_own() -> None:
    chance = Unpredictable()
    chance.getrandbits(1)
    before = list(chance._drawn)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, chance.getrandbits(128).to_bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    drawn = os.read(reader, 16)
    os.close(reader)
    os.close(writer)
    assert len(drawn) == 16
    assert drawn not in before
    assert chance.getrandbits(128).to_bytes(16) in before
