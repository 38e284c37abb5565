"""The tests in the guide for users' own tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.installed_plugin import run_tests
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow  # a pytest of its own takes its time


def test_every_test_in_the_guide_passes(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "testing.md").read_text()
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.M) if "def test_" in block]
    count = sum(len(re.findall(r"^def test_", block, re.M)) for block in blocks)
    assert count >= 8
    told = run_tests(tmp_path, "\n".join(blocks))
    assert f"{count} passed" in told, told
