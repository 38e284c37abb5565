"""The style of the source as far as a machine can see it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, files, name

SOURCES = [path for path in files(".py") if path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "apps")]
PACKAGES = [path.parent for path in SOURCES if path.name == "__init__.py" and path.parent != ROOT / "src/mainspring"]
"""The map of the whole is in ARCHITECTURE.md."""
MAPPED = 7
"""From this number of modules on, a package has a map."""
LONGEST_FILE = 600
"""A file holds one idea, and no count can see that. This one stops what nobody would read to its end."""
SHARED = ("support", "servers")
"""The folders of tests from which others import."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


def _public_names(path: Path) -> list[str] | None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            listed: list[str] = ast.literal_eval(node.value)
            return listed
    return None


def test_imports_point_in_one_direction() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_public_names_are_sorted() -> None:
    lists = {name(path): listed for path in SOURCES if (listed := _public_names(path)) is not None}
    assert lists
    assert {where: listed for where, listed in lists.items() if listed != sorted(listed, key=_rank)} == {}


def _rank(public: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then the rest: the order that the linter keeps, too."""
    return not public.isupper(), not public[0].isupper(), public


def test_no_source_file_is_longer_than_a_reader_can_bear() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {where: length for where, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name(path)
        for path in SOURCES
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_the_map_of_a_package_names_all_its_modules_and_no_others(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    lines = re.findall(r"^ *((?:[a-z_]+/?, )*[a-z_]+/?) {2,}\S", text, re.M)
    mapped = {module.removesuffix("/") for line in lines for module in line.split(", ")}
    aside = set(re.findall(r"`([a-z_]+)`", text))
    present = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    present -= {"__init__", "__main__"}
    assert mapped - present == set()
    assert (not mapped and len(present) < MAPPED) or present - mapped - aside == set()


def test_modules_are_named_after_responsibilities() -> None:
    assert [name(path) for path in SOURCES if VAGUE_NAMES & {*path.parts, path.stem}] == []


@pytest.mark.parametrize("tool", ["generate_sync", "generate_docs"])
def test_generated_files_are_up_to_date(tool: str) -> None:
    command = [sys.executable, "-m", f"tools.{tool}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + "Run `make generate`."


@pytest.mark.parametrize("tool", ["generate_sync", "generate_docs"])
@pytest.mark.parametrize("argument", ["--help", "--chekc"])
def test_a_generator_that_is_asked_for_anything_else_writes_nothing_and_says_what_it_takes(
    tool: str, argument: str
) -> None:
    command = [sys.executable, "-m", f"tools.{tool}", argument]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Expected nothing or --check, got {argument}" in done.stderr


def test_no_test_imports_from_another() -> None:
    """What several tests need is in a module of its own, in `tests/support` if they are in several folders."""
    found = {
        name(path): line
        for path in files(".py")
        if path.is_relative_to(ROOT / "tests")
        for line in path.read_text().splitlines()
        if re.match(r"(from|import) (\.|tests\.)\S*\btest_|from (\.|tests)\S* import (.*, )?test_", line)
    }
    assert found == {}


def test_what_several_folders_of_tests_share_is_in_support() -> None:
    found = []
    for path in files(".py"):
        if not path.is_relative_to(ROOT / "tests"):
            continue
        own = path.relative_to(ROOT / "tests").parts[0]
        modules = re.findall(r"^from tests\.(\w+)", path.read_text(), re.M)
        found += [f"{name(path)}: {module}" for module in modules if module not in (own, *SHARED)]
    assert found == []
