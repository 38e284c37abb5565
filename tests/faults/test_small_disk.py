"""A machine without small disks skips their tests by hand, and fails where the run counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.small_disk import small_disk


@pytest.mark.parametrize(("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_disk_that_cannot_be_mounted_is_never_passed_over_in_ci(
    ci: str, ends: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no `mount`
    with pytest.raises(ends, match="FULL DISK NOT TESTED"), small_disk(tmp_path / "disk", megabytes=1):
        raise AssertionError("expected no disk")
