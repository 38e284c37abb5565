"""Where an export goes: a regular file appears when it is whole; anything else is written to and stays what it is."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click


@contextmanager
def export_file(file: str, *, private: bool) -> Iterator[IO[bytes]]:
    """A private file is its owner's from the first byte, and a regular one: anybody may be reading from a pipe."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial: Path | None = None
    try:
        place = _place(file)
        if place is None:
            if private:
                raise click.UsageError(f"Expected a regular file for --secrets, got {file}, which others may read.")
            # Appending, so that nothing is lost from a file that the shell has opened.
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        else:
            beside = place.with_name(f"{place.name}.partial")
            if private:
                beside.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if private else os.O_TRUNC)
            descriptor = os.open(beside, flags, 0o600 if private else 0o666)
            partial = beside
    except OSError as error:
        raise click.UsageError(f"Expected a FILE that can be written, got {file}: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as target:
            yield target
        if partial is not None and place is not None:
            partial.replace(place)
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read has enough
            raise
        raise click.ClickException(f"{file} could not be written: {error.strerror}") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _place(file: str) -> Path | None:
    """The regular file that is there or will be, behind all links; None if it is something else."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return None
    except FileNotFoundError:
        pass
    path = Path(file)
    while True:
        folder = Path(os.path.realpath(path.parent))
        if folder == Path("/dev/fd") or folder.is_relative_to("/proc"):
            return None  # a descriptor that is open already, whatever it leads to
        path = folder / path.name
        if not path.is_symlink():
            return path
        path = folder / path.readlink()
