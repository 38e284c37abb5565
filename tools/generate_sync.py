"""Writes what blocks from what awaits: the sync client, and the parts of the library for programs without a loop.

    python -m tools.generate_sync            write
    python -m tools.generate_sync --check    exit 1 and name the files that are out of date

`client/_async/` becomes `client/_sync/`: the two differ only in words, and `WORDS` is the whole translation. The
classes in `PARTS`, whose methods need the engine's own loop, become classes of `sync_library/` with the same methods,
which have them run there and wait. Ruff puts the result in order.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).parent.parent / "src" / "mainspring"

WORDS: Final = {
    r"async (def|with|for)\b": r"\1",
    r"\bawait ": "",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\bAsyncIterator\b": "Iterator",
    r"\bAsyncTransport\b": "SyncTransport",
    r"\bAsync(Client|Connection|Fetches|Jobs|Keys|Timers|Namespaces)\b": r"\1",
    r"\bclient\._async\b": "client._sync",
}


class Part(NamedTuple):
    """A class of the library, and the file that its blocking twin goes to."""

    source: str
    name: str
    target: str
    left_out: frozenset[str] = frozenset()
    """Methods, and arguments of methods, that the twin does not have."""
    is_generic: bool = False
    """Then each twin says which of the many it stands for."""


PARTS: Final = (
    # A connection belongs to the thread that uses it: `TimerWriter` is for those.
    Part("timers/program.py", "Timers", "timers.py", frozenset({"connection"})),
    Part("jobs/program.py", "Jobs", "jobs.py", frozenset({"declare", "open"})),
    Part("fetches/program.py", "Fetches", "fetches.py"),
    Part("namespaces/program.py", "Namespaces", "namespaces.py"),
    Part("records.py", "Records", "records.py", is_generic=True),
)


def translate(source: str, *, name: str) -> str:
    for pattern, word in WORDS.items():
        source = re.sub(pattern, word, source)
    return _in_order(_noted(source, name), "I,UP028")


def blocking_twin(part: Part) -> str:
    """A class whose methods ask for the same of `ms.<service>`, and wait."""
    tree = ast.parse((SOURCES / part.source).read_text())
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == part.name)
    service = part.name.lower()
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and not _is_future(node)]
    module = f"mainspring.{part.source.removesuffix('.py').replace('/', '.')}"
    own = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node is not found]
    lines = [
        f'"""`{part.name}` of `{module}`, for code that waits."""',
        "from __future__ import annotations",
        "from collections.abc import AsyncIterator, Callable, Iterator",
        *map(ast.unparse, imports),
        f"from {module} import {', '.join([part.name, *own])}",
        "from mainspring.library import Mainspring",
        "from mainspring.sync_library.engine_thread import EngineThread",
        *(['T = TypeVar("T")'] if part.is_generic else []),
        f"class Sync{part.name}{'(Generic[T])' if part.is_generic else ''}:",
        f'    """`ms.{service}`."""',
        *_beginning(part),
    ]
    for method in _public(found, part):
        lines += _blocking(method, part, "self._which(ms)" if part.is_generic else f"ms.{service}")
    return _in_order(_noted("\n".join(lines) + "\n", part.source), "I,F401,F811,UP035")


def _is_future(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _beginning(part: Part) -> Iterator[str]:
    which = f", which: Callable[[Mainspring], {part.name}[T]]" if part.is_generic else ""
    yield f"    def __init__(self, engine: Callable[[], EngineThread]{which}) -> None:"
    yield "        self._engine = engine"
    if part.is_generic:
        yield "        self._which = which"


def _public(found: ast.ClassDef, part: Part) -> Iterator[ast.AsyncFunctionDef | ast.FunctionDef]:
    for node in found.body:
        if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        if not node.name.startswith("_") and node.name not in part.left_out:
            yield node


def _blocking(method: ast.AsyncFunctionDef | ast.FunctionDef, part: Part, service: str) -> Iterator[str]:
    arguments = method.args
    kept = [
        (argument, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if argument.arg not in part.left_out
    ]
    arguments.kwonlyargs = [argument for argument, _ in kept]
    arguments.kw_defaults = [default for _, default in kept]
    assert method.returns is not None, f"Expected {part.name}.{method.name} to say what it returns"
    returned = ast.unparse(method.returns)
    iterates = returned.startswith("AsyncIterator[")
    passed = [argument.arg for argument in arguments.args[1:]]
    passed += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    said = [each for each in (ast.get_docstring(method) or "").split("\n\n") if not _names(each, part.left_out)]
    yield f"    def {method.name}({ast.unparse(arguments)}) -> {returned.removeprefix('Async')}:"
    if any(said):
        yield _quoted("\n\n".join(said))
    verb = "iterate" if iterates else "run"
    yield f"        return self._engine().{verb}(lambda ms: {service}.{method.name}({', '.join(passed)}))"


def _names(text: str, left_out: frozenset[str]) -> bool:
    return any(f"`{name}`" in text for name in left_out)


def _quoted(text: str) -> str:
    first, *rest = text.split("\n")
    body = "\n".join([first, *(f"        {line}".rstrip() for line in rest)])
    return f'        """{body}{chr(10) + "        " if rest else ""}"""'


def _noted(source: str, name: str) -> str:
    return f"# Generated from {name} by tools/generate_sync.py; change that one.\n{source}"


def _in_order(source: str, rules: str) -> str:
    return _ruff(_ruff(source, "check", "--select", rules, "--fix", "--unsafe-fixes", "--quiet"), "format")


def _ruff(source: str, *command: str) -> str:
    arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(SOURCES / "generated.py"), "-"]
    done = subprocess.run(arguments, input=source, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    return done.stdout


def generated() -> Iterator[tuple[Path, str]]:
    for source in sorted((SOURCES / "client" / "_async").glob("[a-z]*.py")):
        target = SOURCES / "client" / "_sync" / source.name
        yield target, translate(source.read_text(), name=f"_async/{source.name}")
    for part in PARTS:
        yield SOURCES / "sync_library" / part.target, blocking_twin(part)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"Expected nothing or --check, got {' '.join(arguments)}\n\n{__doc__}")
        return 2
    stale: list[Path] = []
    for target, text in generated():
        if not target.exists() or target.read_text() != text:
            stale.append(target)
            if "--check" not in arguments:
                target.write_text(text)
    for path in stale:
        sys.stdout.write(f"{path.relative_to(SOURCES)} {'is out of date' if '--check' in arguments else 'written'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
