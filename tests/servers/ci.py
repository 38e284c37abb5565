"""Whether this run is one of continuous integration, where what cannot be tested is a failure."""

from __future__ import annotations

import os


def in_ci() -> bool:
    return os.environ.get("CI", "").strip().lower() not in ("", "0", "false", "no", "off")
