"""The examples do what the guide says: the wrong ways fail, the right ways do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.running_server import clean_environment
from tests.support.source_tree import ROOT

GUIDE = ROOT / "docs" / "guides" / "idempotency.md"

PRINTED = {
    "check_then_act.py": ["order-17 was charged 2 times"],
    "unique_constraint.py": [
        "ann: no answer",
        "ann: duplicate",
        "bob: charged",
        "bob: duplicate",
        "ann has an order and was charged 0 times; bob wanted two and got 1",
    ],
    "charge_once.py": [
        "order 17: 1 charge, 10 times 'receipt of 17'",
        "  1 executed, 9 replayed",
        "order 18: the work was started, and the process running it stopped responding. It may have been done "
        "completely, in part, or not at all, and is not run again automatically",
        "  asked the bank: 'receipt of 18', 1 charge",
    ],
    "order_once.py": [
        "rolled back: the customer has hung up",
        "  orders: 0",
        "order 17 is placed",
        "  orders: 1",
        "order 17 is placed, a replay",
        "  orders: 1",
    ],
}


@pytest.mark.parametrize("example", PRINTED)
def test_an_example_prints_what_the_guide_says(example: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "idempotency" / example)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=clean_environment()
    )
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (PRINTED[example], "", 0)
    assert f"examples/idempotency/{example}" in GUIDE.read_text()
