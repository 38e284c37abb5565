"""`make matrix` names the Pythons that it could not try, and does not pass for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import matrix

from tests.support.source_tree import ROOT


def test_a_python_that_cannot_be_had_is_named_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "PLACE", tmp_path / "matrix")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix.main(["3.14"]) == matrix.EXIT_NOT_TRIED
    said = capsys.readouterr()
    assert "Python 3.14: NOT TRIED: there is no python3.14 here" in said.out
    assert "NOT TRIED" in said.err


def test_a_version_that_is_not_supported_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        matrix.main(["2.7"])
    assert ended.value.code == 2
    assert "Expected versions of 3.11, 3.12, 3.13, 3.14, got 2.7" in capsys.readouterr().err


def test_the_oldest_version_is_the_one_that_the_package_asks_for() -> None:
    assert f'requires-python = ">={matrix.VERSIONS[0]}"' in (ROOT / "pyproject.toml").read_text()
