"""Tables show what is there, whatever it is."""

from __future__ import annotations

import pytest

from mainspring.cli.globals import Globals
from mainspring.cli.output import show_table


def test_a_table_escapes_what_would_turn_the_direction_or_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("id",), [("pay\u202efdp\x1b[2J\x9b\u2066",)], Globals(no_color=True))
    shown = capsys.readouterr().out
    assert r"pay\u202efdp\x1b[2J\x9b\u2066" in shown
    assert shown.replace("\n", "").isprintable()
