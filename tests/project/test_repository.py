"""The repository speaks of itself: no machine that it was written on, no registry that it was built from."""

from __future__ import annotations

import re

from tests.support.source_tree import ROOT, files, name

# Put together here, so that this file does not contain what it forbids.
REGISTRIES = tuple(".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")))
MACHINE_PATH = re.compile(f"(?<![\\w.])/({'|'.join(('home', 'root', 'Users', 'work'))})/")
PINNED = re.compile(r"^[a-z0-9.-]+==[^ ;]+( ; .+?)? \\$")


def _texts() -> dict[str, str]:
    return {name(path): path.read_text(errors="replace") for path in files()}


def test_no_file_names_a_package_registry() -> None:
    assert [where for where, text in _texts().items() if any(host in text for host in REGISTRIES)] == []


def test_no_file_names_a_path_of_a_machine() -> None:
    found = {where: match[0] for where, text in _texts().items() if (match := MACHINE_PATH.search(text))}
    assert found == {}


def test_lock_files_hold_names_versions_and_hashes_and_nothing_else() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text().splitlines():
            pinned = PINNED.match(line) or line.startswith(("    --hash=sha256:", "    # "))
            assert pinned, f"{path.name}: {line}"


def test_both_lock_files_pin_the_same_runtime() -> None:
    def pins(file: str) -> set[str]:
        text = (ROOT / "requirements" / file).read_text()
        return {line.split(" ")[0] for line in text.splitlines() if "==" in line and line[0] not in " #"}

    assert pins("runtime.txt") - pins("test.txt") == set()


def test_scripts_can_be_executed() -> None:
    for script in (".ci/run", "tools/make_venv.sh", "tools/lock.sh"):
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_every_make_target_is_listed_by_help() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE))
    assert phony == set(re.findall(r"^([a-z-]+):.*## .+$", text, re.MULTILINE))
