"""File descriptors of this process: how many it may have, for what, and what an error for lack of one looks like.

Every connection is one, in both directions, and so is every file. A system gives a process 1,024 unless it asks for
more; a process without one left cannot even look up a name. So each kind has a share that the others leave to it: a few
are kept for files, half of the rest is for peers, and what these cannot need is for calls, a quarter of it for
connections that wait for the next call.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Final

WANTED: Final = 65_536
KEPT: Final = 128
"""For the store, lookups, logs and whatever else is opened for a moment; no more than a quarter of all."""
_IDLE_SENDERS: Final = 2
"""How many senders keep many connections: one for callbacks, one for executors."""

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
    """How many the connections of peers may take."""
    return _to_share() // 2


def for_calls(*, peers: int) -> int:
    """How many the calls in flight may take, if no more than so many peers are let in."""
    return max(1, (_to_share() - min(peers, for_peers())) * 3 // 4)


def for_idle() -> int:
    """How many connections each sender may keep for its next calls."""
    return _to_share() // 8 // _IDLE_SENDERS


def _to_share() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = WANTED if soft == resource.RLIM_INFINITY else soft
    return available - min(KEPT, available // 4)


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
