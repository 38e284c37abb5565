"""A project in whose environment the package is installed with the entry points that it declares, and its tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.source_tree import ROOT


def run_tests(project: Path, text: str, *options: str) -> str:
    """What a pytest of its own prints about a module with this text."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = project / "site" / "installed-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in entry_points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (project / "test_program.py").write_text(text)
    (project / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    path = os.pathsep.join([str(project / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST"))}
    ended = subprocess.run(
        # Plugins that take seconds to load and have nothing to do with it are left out.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", *options, "test_program.py"],
        cwd=project,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.stdout + ended.stderr
