"""File descriptors of this process: how many it may have, and what an error for lack of one looks like.

Every connection is one, in both directions, and so is every file. A system gives a process 1,024 unless it asks for
more; a process without one left cannot even look up a name.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Final

WANTED: Final = 65_536
KEPT: Final = 128
"""For the store, lookups, logs and whatever else is opened for a moment."""

_WITHOUT: Final = (errno.EMFILE, errno.ENFILE)
_VAGUE: Final = (socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY)


def raise_limit() -> int:
    """Ask for as many as are wanted and allowed; returns how many there are then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return WANTED
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


def for_peers() -> int:
    """How many the connections of peers may take: half of them, because calls need as many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = WANTED if soft == resource.RLIM_INFINITY else soft
    return max(1, (available - KEPT) // 2)


def is_want_of_one(error: OSError) -> bool:
    """Whether something failed only because there was no descriptor left. A resolver does not say so itself."""
    if isinstance(error, socket.gaierror):
        return error.errno in _VAGUE and not has_one()
    return error.errno in _WITHOUT


def has_one() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _WITHOUT
    return True
