"""Writes a CycloneDX 1.6 bill of materials as JSON.

It comes from the lock files, so it says the same wherever it is made; licences from what is installed. The same locks
give the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Final

import mainspring
from tools.locks import Pinned, licence, pinned

OURS: Final = "mainspring"


def bill() -> dict[str, Any]:
    packages = pinned()
    components = [_component(package) for package in packages]
    ours = f"pkg:pypi/{OURS}@{mainspring.__version__}"
    wants: dict[str, list[str]] = {ref: [] for ref in (ours, *map(_ref, packages))}
    for package in packages:
        for name in package.asked_by:
            for asking in [ours] if name == OURS else [_ref(other) for other in packages if other.name == name]:
                wants[asking].append(_ref(package))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([ours, components]))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": OURS,
                "version": mainspring.__version__,
                "purl": ours,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": found} for ref, found in wants.items()],
    }


def _ref(package: Pinned) -> str:
    return f"pkg:pypi/{package.name}@{package.version}"


def _component(package: Pinned) -> dict[str, Any]:
    said = licence(package)
    return {
        "type": "library",
        "bom-ref": _ref(package),
        "name": package.name,
        "version": package.version,
        "purl": _ref(package),
        "scope": "required" if "runtime" in package.locks else "optional",
        "hashes": [{"alg": "SHA-256", "content": content} for content in package.hashes],
        **({"licenses": [{"license": {"name": said}}]} if said else {}),
        "properties": [{"name": "mainspring:lock", "value": lock} for lock in sorted(package.locks)],
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make sbom", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default="sbom.json", metavar="FILE", help="- is stdout [sbom.json]")
    file = parser.parse_args(arguments).file
    text = json.dumps(bill(), indent=2) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return 0
    try:
        Path(file).write_text(text)
    except OSError as error:
        parser.error(f"Expected a FILE that can be written, got {file}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
