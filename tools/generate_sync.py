"""Writes the sync client from the async one: `client/_async/` becomes `client/_sync/`.

    python tools/generate_sync.py            write
    python tools/generate_sync.py --check    exit 1 and name the files that are out of date

The two differ only in words: the table below is the whole translation, ruff puts the result in order.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "mainspring" / "client"

WORDS = {
    r"async (def|with|for)\b": r"\1",
    r"\bawait ": "",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\bAsyncIterator\b": "Iterator",
    r"\bAsyncTransport\b": "SyncTransport",
    r"\bAsync(Client|Connection|Fetches|Jobs|Timers|Namespaces)\b": r"\1",
    r"\bclient\._async\b": "client._sync",
}


def translate(source: str, *, name: str) -> str:
    for pattern, word in WORDS.items():
        source = re.sub(pattern, word, source)
    source = f"# Generated from {name} by tools/generate_sync.py; change that one.\n" + source
    return _ruff(_ruff(source, "check", "--select", "I,UP028", "--fix", "--unsafe-fixes", "--quiet"), "format")


def _ruff(source: str, *command: str) -> str:
    arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(CLIENT / "_sync" / "client.py"), "-"]
    done = subprocess.run(arguments, input=source, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    return done.stdout


def main(arguments: list[str]) -> int:
    stale: list[Path] = []
    for source in sorted((CLIENT / "_async").glob("[a-z]*.py")):
        target = CLIENT / "_sync" / source.name
        text = translate(source.read_text(), name=f"_async/{source.name}")
        if not target.exists() or target.read_text() != text:
            stale.append(target)
            if "--check" not in arguments:
                target.write_text(text)
    for path in stale:
        sys.stdout.write(f"{path.relative_to(CLIENT)} {'is out of date' if '--check' in arguments else 'written'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
