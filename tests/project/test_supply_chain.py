"""What Mainspring is made of can be listed, checked and pinned: licences, bill of materials, audit, locks."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tools import audit, licences, sbom
from tools.locks import SHIPPED, pinned

from tests.support.source_tree import ROOT

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_every_extra_has_a_lock_with_the_tested_versions() -> None:
    assert set(SHIPPED) == EXTRAS - {"test"} | {"runtime"}
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == {*SHIPPED, "cart", "test"}
    packages = pinned((*SHIPPED, "cart", "test"))
    assert all(package.hashes and "test" in package.locks for package in packages)
    script = (ROOT / "tools" / "lock.sh").read_text()
    assert all(extra in script for extra in EXTRAS)


def test_every_licence_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert licences.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [package.name for package in pinned()]


def test_the_bill_of_materials_names_every_package_and_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-m", "tools.sbom", str(tmp_path / name)], check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    bill = json.loads((tmp_path / "one").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert {(found["name"], found["version"]) for found in bill["components"]} == {
        (package.name, package.version) for package in pinned()
    }
    refs = [bill["metadata"]["component"]["bom-ref"], *(found["bom-ref"] for found in bill["components"])]
    assert len(set(refs)) == len(refs)
    assert [found["ref"] for found in bill["dependencies"]] == refs
    wanted = {ref for found in bill["dependencies"] for ref in found["dependsOn"]}
    assert wanted == set(refs[1:]), "somebody asks for every package"
    assert sbom.bill() == bill


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ('{"name": "a", "version": "1", "vulns": []}', 0, "No known weakness"),
        ('{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}', 1, "CVE-1, mended by 2"),
        ('{"name": "a", "skip_reason": "not found"}', 3, "NOT AUDITED: 1 packages"),
    ],
)
def test_an_audit_that_could_not_look_says_so_and_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str, code: int, said: str
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{{\"dependencies\": [{answer}]}}'\n")
    program.chmod(0o755)
    assert audit.main(["--pip-audit", str(program)]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert audit.main(["--pip-audit", str(tmp_path / "missing")]) == 3


def test_an_audit_of_some_locks_asks_for_these_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho \'{{"dependencies": []}}\'\n')
    program.chmod(0o755)
    assert audit.main(["redis", "test", "--pip-audit", str(program)]) == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [Path(line.split()[-1]).name for line in asked] == ["redis.txt", "test.txt"]
    assert "redis.txt, test.txt" in capsys.readouterr().out


@pytest.mark.parametrize("command", [audit, licences, sbom])
def test_what_makes_no_sense_is_refused_and_help_is_given(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, code in ((["--nonsense"], 2), (["one", "two"], 2), (["--help"], 0)):
        with pytest.raises(SystemExit) as ended:
            command.main(arguments)
        assert ended.value.code == code
    assert "usage: make " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_bill_of_materials_that_cannot_be_written_is_told_in_clear_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sbom.main(["/nowhere/sbom.json"])
    assert "/nowhere/sbom.json: No such file" in capsys.readouterr().err
