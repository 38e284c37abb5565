"""Documentation is complete where that can be checked, and its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.generate_docs import document

from mainspring.config import Config
from mainspring.errors import LockLost, LockTaken, MainspringError
from mainspring.fetches.errors import FetchError
from mainspring.telemetry import render_metrics
from mainspring.testing.attacks.catalogue import ATTACKS
from mainspring.testing.fuzzing.__main__ import TARGETS
from mainspring.testing.fuzzing.__main__ import main as fuzz
from tests.support.source_tree import ROOT, files, name

PAGES = files(".md")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
LOCK_CODES = (LockLost.code, LockTaken.code)
FETCH_CODES = (FetchError.code, *(kind.code for kind in FetchError.__subclasses__()))
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _links(path: Path) -> Iterator[str]:
    yield from LINK.findall(FENCE.sub("", path.read_text()))


def test_relative_links_lead_to_files_and_headings() -> None:
    broken = []
    for page in PAGES:
        for link in _links(page):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and anchor not in _anchors(path)):
                broken.append(f"{name(page)}: {link}")
    assert broken == []


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in _links(page) if ":" not in link]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make serve" in text
    assert "make test" in text


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert [field for field in Config.__struct_fields__ if f"| `{field}` |" not in text] == []


def test_every_route_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    paths = [f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods]
    assert paths
    assert [path for path in paths if path not in text] == []


def test_every_error_code_that_the_api_uses_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()

    def codes(kind: type[MainspringError]) -> set[str]:
        return {kind.code}.union(*(codes(child) for child in kind.__subclasses__()))

    unsaid = codes(MainspringError) - set(re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", text, re.MULTILINE))
    # The root is never raised, a bad configuration never serves, a forbidden destination is a wrong field, and why a
    # fetch has no response is a result.
    assert unsaid == {"error", "config", "unsafe_target", *FETCH_CODES}
    library = (ROOT / "docs" / "reference" / "library.md").read_text()
    assert [code for code in (*LOCK_CODES, *FETCH_CODES) if f"`{code}`" not in library] == []


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "guides" / "operating.md").read_text()
    source = (ROOT / "src" / "mainspring" / "cluster" / "instance.py").read_text() + render_metrics({})
    names = set(re.findall(r"mainspring_[a-z_]+(?:_total|_seconds)\b", source))
    names |= set(re.findall(r'"(mainspring_[a-z_]+)"', source))
    assert names
    assert [metric for metric in sorted(names) if f"`{metric}`" not in text] == []


def _bounds() -> list[list[str]]:
    """The rows of the table of bounds: what, default, setting, tests."""
    text = (ROOT / "docs" / "guides" / "security.md").read_text()
    section = text.partition("\n## Bounds\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "](" in line]


def test_every_bound_names_a_test_that_exists() -> None:
    guide = ROOT / "docs" / "guides"
    rows = _bounds()
    assert len(rows) > 20
    missing = []
    for what, _, _, tests in rows:
        named = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", tests)
        for sentence, path in named:
            function = f"def test_{sentence.replace(' ', '_')}("
            if function not in (guide / path).resolve().read_text():
                missing.append(f"{what}: {sentence}")
        if not named:
            missing.append(f"{what}: no test")
    assert missing == []


def test_every_bound_that_can_be_set_is_a_setting_with_this_default() -> None:
    defaults = dict(zip(Config.__struct_fields__, Config.__struct_defaults__, strict=True))
    wrong = [
        f"{what}: {default}"
        for what, default, setting, _ in _bounds()
        if setting and default.replace(",", "").split()[0] != str(defaults[setting.strip("`")])
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_in_the_guide(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "guides" / "security.md").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_targets_of_nonsense_have_one_name_in_the_guide_and_in_the_help(target: str) -> None:
    guide = (ROOT / "docs" / "guides" / "security.md").read_text().partition("## Nonsense")[2]
    assert f"`{target}`" in guide
    assert re.search(rf"^ +{target}  ", fuzz.help or "", re.MULTILINE)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_four_parts(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert headings == ["Context", "Decision", "Alternatives", "Consequences"]
    assert page.read_text().startswith(f"# {int(page.name[:4])}. ")


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert [page.name for page in DECISIONS if f"({page.name})" not in listed] == []
    table = (ROOT / "ARCHITECTURE.md").read_text()
    assert [page.name for page in DECISIONS if f"(docs/decisions/{page.name})" not in table] == []


def test_the_layers_in_the_architecture_name_every_module_that_has_one() -> None:
    _, _, rest = (ROOT / ".importlinter").read_text().partition("\nlayers =\n")
    layers, _, _ = rest.partition("\n\n")
    _, _, shown = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Layers\n")
    shown, _, _ = shown.partition("\n### ")
    modules = set(re.findall(r"[a-z_]+", layers)) - {"__main__"}
    assert modules - set(re.findall(r"[a-z_]+", shown)) == set()
