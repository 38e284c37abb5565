"""Lists the licences of all dependencies.

Exits with 1 if one says nothing, with 2 if what was asked for makes no sense. Packages for other platforms are not
installed, and cannot be asked.
"""
# ruff: noqa: T201  (what it says is what it is for)

from __future__ import annotations

import argparse
import sys

from tools.locks import SHIPPED, licence, pinned


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make licences", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="those of the tests, too")
    packages = pinned((*SHIPPED, "test") if parser.parse_args(arguments).all else SHIPPED)
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
