"""Asks pip-audit about every lock file: `python -m tools.audit PIP_AUDIT`, the program to ask with.

Exits with 0 when all packages were looked up and none has a known weakness, with 1 when one has, and with 3 when
something could not be looked up: then nothing is known, and it is said so.
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tools.locks import LOCKS, SHIPPED

EXIT_NOT_AUDITED = 3


def main(arguments: list[str]) -> int:
    weak: set[str] = set()
    skipped: set[str] = set()
    for lock in SHIPPED:
        command = [*arguments, "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        try:
            done = subprocess.run(  # noqa: S603 - the program that the caller names
                [*command, "--requirement", str(LOCKS / f"{lock}.txt")], capture_output=True, text=True, check=False
            )
            found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (OSError, ValueError, KeyError) as error:
            print(f"NOT AUDITED: {lock}.txt: pip-audit gave no answer ({error})", file=sys.stderr)
            return EXIT_NOT_AUDITED
        skipped |= {package["name"] for package in found if "skip_reason" in package}
        for package in found:
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
        print("No known weakness in any package of the lock files.")
    return EXIT_NOT_AUDITED if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
