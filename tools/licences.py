"""Lists the licences of all dependencies: `python -m tools.licences [--all]`. With --all, those of the tests, too.

Exits with 1 if one says nothing. Packages for other platforms are not installed, and cannot be asked.
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import sys

from tools.locks import SHIPPED, licence, pinned


def main(arguments: list[str]) -> int:
    packages = pinned((*SHIPPED, "test") if "--all" in arguments else SHIPPED)
    unknown = 0
    for package in packages:
        said = licence(package)
        unknown += said == ""
        said = "not installed here" if said is None else said or "UNKNOWN: it does not say"
        print(f"{package.name:24} {package.version:14} {said}")
    print(f"{len(packages)} packages, {unknown} of unknown licence")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
