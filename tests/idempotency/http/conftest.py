"""The example is a package of its own, beside the tests."""

from __future__ import annotations

import sys

from tests.support.source_tree import ROOT

sys.path.insert(0, str(ROOT / "examples"))
