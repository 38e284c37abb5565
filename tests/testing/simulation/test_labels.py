"""Planted defects bear the names of what they change, and the guide lists them all."""

from __future__ import annotations

import re

import pytest

from tests.support.source_tree import ROOT
from tests.testing.simulation import planted, planted_fetches, planted_jobs, planted_keys
from tests.testing.simulation.planted_defect import Planted

GUIDE = ROOT / "docs" / "guides" / "simulation.md"
ALL = {
    **planted.PLANTED,
    **planted_fetches.PLANTED,
    **planted_jobs.PLANTED,
    **planted_keys.PLANTED,
}


def test_the_guide_lists_the_planted_defects_and_the_rules_that_find_them() -> None:
    rows = re.findall(r"^\| (\S+: .+) \| (\w+) \| \d+ \|$", GUIDE.read_text(), re.MULTILINE)
    assert dict(rows) == {label: defect.rule for label, defect in ALL.items()}


@pytest.mark.parametrize(("label", "defect"), ALL.items(), ids=ALL)
def test_a_planted_defect_bears_the_name_of_what_it_changes(label: str, defect: Planted) -> None:
    module, _, method = label.partition(":")[0].partition(".")
    owner = defect.owner
    homes = {getattr(owner, "__module__", owner.__name__), getattr(vars(owner)[defect.method], "__module__", "")}
    assert method in (defect.method, "")
    assert module in {home.rpartition(".")[2] for home in homes}
