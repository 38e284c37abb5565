"""Looks up known weaknesses of the dependencies with pip-audit, which is installed for the moment.

Exits with 0 when all packages were looked up and none has a known weakness, with 1 when one has, with 2 when what was
asked for makes no sense, and with 3 when something could not be looked up: then nothing is known, and it is said so.
With 130 or 143 when it was ended by Ctrl-C or SIGTERM.
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.locks import LOCKS, SHIPPED

EXIT_NOT_AUDITED = 3
KNOWN = sorted(path.stem for path in LOCKS.glob("*.txt"))


class NotAudited(Exception):
    """Nothing is known, and why."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("locks", nargs="*", metavar="LOCK", help=f"of {', '.join(KNOWN)} [{' '.join(SHIPPED)}]")
    parser.add_argument("--pip-audit", metavar="PROGRAM", help="use this one, and install none")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.locks) - set(KNOWN):
        parser.error(f"Expected locks of {', '.join(KNOWN)}, got {', '.join(sorted(unknown))}")
    try:
        with tempfile.TemporaryDirectory(prefix="mainspring-audit-") as scratch:
            program = chosen.pip_audit or _installed(Path(scratch))
            return _audit(program, chosen.locks or SHIPPED)
    except NotAudited as error:
        print(f"NOT AUDITED: {error}", file=sys.stderr)
        return EXIT_NOT_AUDITED
    except KeyboardInterrupt:
        print("NOT AUDITED: ended by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT


def _installed(place: Path) -> str:
    python = place / "bin" / "python"
    try:
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"], check=True)  # noqa: S603 - our own
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotAudited("pip-audit cannot be installed here") from error
    return str(place / "bin" / "pip-audit")


def _audit(program: str, locks: Sequence[str]) -> int:
    weak: set[str] = set()
    skipped: set[str] = set()
    for lock in locks:
        for package in _asked(program, lock):
            if "skip_reason" in package:
                skipped.add(package["name"])
            for flaw in package.get("vulns", ()):
                mended = ", ".join(flaw["fix_versions"]) or "nothing yet"
                weak.add(f"{package['name']} {package['version']}: {flaw['id']}, mended by {mended}")
    for line in sorted(weak):
        print(line)
    if skipped:
        print(
            f"NOT AUDITED: {len(skipped)} packages could not be looked up, such as {min(skipped)}. The package "
            "registry in use here does not know of weaknesses; run this where the public one can be reached.",
            file=sys.stderr,
        )
    if weak:
        return 1
    if not skipped:
        print(f"No known weakness in any package of {', '.join(f'{lock}.txt' for lock in locks)}.")
    return EXIT_NOT_AUDITED if skipped else 0


def _asked(program: str, lock: str) -> list[dict[str, Any]]:
    command = [program, "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(  # noqa: S603 - the program that the caller names, or ours
            [*command, "--requirement", str(LOCKS / f"{lock}.txt")], capture_output=True, text=True, check=False
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (OSError, ValueError, KeyError) as error:
        raise NotAudited(f"{lock}.txt: pip-audit gave no answer ({error})") from error
    return found


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    sys.exit(main(sys.argv[1:]))
