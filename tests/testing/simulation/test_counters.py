"""A search tells whether it has looked where it should."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainspring.testing.simulation import counters
from mainspring.testing.simulation.__main__ import main
from mainspring.testing.simulation.counters import OF, total, unreached


def search_one(folder: Path) -> Result:
    return CliRunner().invoke(main, ["--seeds", "1", "--processes", "1", "--keep", str(folder)])


def test_a_long_search_in_which_something_never_happened_does_not_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "SEEDS", 1)
    ended = search_one(tmp_path)
    assert "never happened: " in ended.output
    assert ended.exit_code == 3


def test_a_short_search_need_not_have_met_everything(tmp_path: Path) -> None:
    ended = search_one(tmp_path)
    assert "never happened" not in ended.output
    assert ended.exit_code == 0


def test_what_was_never_reached_is_told_in_the_order_of_the_list() -> None:
    runs = [["all dead", "DST"], ["all dead"], []]
    assert total(runs) == {"all dead": 2, "DST": 1}
    assert unreached(total(runs), "jobs") == [name for name in OF["jobs"] if name != "DST"]
    assert unreached(OF["all"], "all") == []
