"""Who is let in, and what is remembered of it."""

from __future__ import annotations

import pytest

from mainspring.api.tokens import REMEMBERED, Tokens, token_digest


@pytest.fixture
def tokens() -> Tokens:
    return Tokens((token_digest("one"), token_digest("two")))


@pytest.mark.parametrize("header", [b"Bearer one", b"bearer two", b"BEARER  one \t"])
def test_whoever_shows_a_token_is_let_in_every_time(tokens: Tokens, header: bytes) -> None:
    assert [tokens.admit(header) for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("header", [b"", b"Bearer", b"Bearer ", b"Bearer three", b"Basic one", b"one", b"Bearer one 2"])
def test_nobody_else_is_let_in_however_often_he_asks(tokens: Tokens, header: bytes) -> None:
    assert tokens.admit(b"Bearer one")
    assert [tokens.admit(header) for _ in range(3)] == [False] * 3


def test_nothing_is_no_token_even_if_it_is_configured() -> None:
    assert not Tokens((token_digest(""),)).admit(b"Bearer ")


def test_what_is_remembered_is_bounded_and_not_needed(tokens: Tokens) -> None:
    for spaces in range(10 * REMEMBERED):
        assert tokens.admit(b"Bearer one" + b" " * spaces)
    assert len(tokens._admitted) == REMEMBERED
