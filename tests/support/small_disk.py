"""A file system that is soon full. Where none can be mounted, its test is skipped; where `CI` is set, it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.ci import in_ci


@contextmanager
def small_disk(path: Path, *, megabytes: int) -> Iterator[Path]:
    """A new file system at `path`, which is made."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "mainspring-test", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        give_up(f"FULL DISK NOT TESTED: no tmpfs can be mounted here: {getattr(error, 'stderr', None) or error}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=10)


def give_up(reason: str) -> None:
    """What a test does that lacks something of its machine. A run that counts may lack nothing."""
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)
