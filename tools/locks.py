"""What the lock files pin: every package with its version, its hashes and who asked for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
LOCKS: Final = ROOT / "requirements"
SHIPPED: Final = ("runtime", "postgresql", "mysql", "mongodb", "cassandra", "dynamodb", "redis")
"""Of these a server is made; `test` is what we build and test with."""
_PIN: Final = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;]+)")
_VIA: Final = re.compile(r"    # (?:via)? *(?P<name>[a-zA-Z0-9._-]+)")


@dataclass
class Pinned:
    name: str
    version: str
    hashes: list[str] = field(default_factory=list)
    asked_by: set[str] = field(default_factory=set)
    """Names of packages; our own among them."""
    locks: set[str] = field(default_factory=set)


def pinned(locks: Iterable[str] = SHIPPED) -> list[Pinned]:
    """All packages of these locks, by name. One may have two versions, for different versions of Python."""
    found: dict[tuple[str, str], Pinned] = {}
    for lock in locks:
        for package in _read(lock):
            known = found.setdefault((package.name, package.version), package)
            known.asked_by |= package.asked_by
            known.locks.add(lock)
    return [found[key] for key in sorted(found)]


def _read(lock: str) -> list[Pinned]:
    packages: list[Pinned] = []
    for line in (LOCKS / f"{lock}.txt").read_text().splitlines():
        if pin := _PIN.match(line):
            packages.append(Pinned(pin["name"], pin["version"]))
        elif "--hash=sha256:" in line:
            packages[-1].hashes.append(line.partition("sha256:")[2].rstrip(" \\"))
        elif via := _VIA.match(line):
            packages[-1].asked_by.add(via["name"])
    return packages


def licence(package: Pinned) -> str | None:
    """What a package says of its licence, which may be nothing. None: not installed here."""
    try:
        told = metadata.metadata(package.name).json
    except metadata.PackageNotFoundError:
        return None
    classifiers = [text for text in told.get("classifier", []) if text.startswith("License ::")]
    first_line = next(iter(str(told.get("license", "")).strip().splitlines()), "")
    expression = str(told.get("license_expression", ""))
    return expression or ", ".join(text.rpartition(" :: ")[2] for text in classifiers) or first_line
